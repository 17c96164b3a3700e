"""For applications that submit jobs and wait for them, from any driver.

Imports `database`. Must stay light: `import reactor` loads it in services that only submit.
"""
