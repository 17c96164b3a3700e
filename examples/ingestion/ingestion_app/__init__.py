"""Carbon reports: ingests activity data and emission factors, and keeps the totals of each module right."""
