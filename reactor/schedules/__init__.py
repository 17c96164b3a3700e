"""Recurring jobs: how they are declared, when they are due, and the submission of what is due.

Imports `database`.
"""
