"""What happens to every request and response: security headers, cross-origin rules, request counts."""
