"""The JSON API: one module per group of endpoints, and what they share.

Every endpoint is declared as an `Endpoint`. `access` checks permissions, `read_request` parses input by the models in
`requests`, `render_response` writes JSON as described in `responses`, and `error_responses` turns errors into problems.
Imports the application's state; `reactor_http.app` imports it.
"""
