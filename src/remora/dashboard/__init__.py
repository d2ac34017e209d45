"""The page, and the REST API below it: a surface as the command line is, which asks the controller through ``remora.live.api``.

What lives here: a server (``serving``, ``app``) with routes, what guards them, one poller for all pages (``hub``) and the page
itself (``page/``: modules, styles and drawings as a browser reads them). It decides nothing and remembers nothing but the last
15 minutes of what it saw. Needs the extra ``remora[dashboard]``.
"""
