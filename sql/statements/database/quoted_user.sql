-- The user to name in the script for an administrator, quoted as SQL needs it.
select quote_ident(session_user)
