"""Trading simulations: runs models over a range of dates, and keeps their positions, trades and returns."""
