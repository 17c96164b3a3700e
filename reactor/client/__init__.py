"""The client for applications that submit jobs and wait for them, with any driver.

Imports `database`. Keep it light: `import reactor` loads it in services that only submit.
"""
