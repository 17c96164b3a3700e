-- In which encoding this database stores text. What handlers return and raise is Unicode, and needs UTF8.
select current_setting('server_encoding')
