"""`twinlog dashboard`: pages for operators of any RocketMQ cluster, in a browser.

In: views of `twinlog.observe`, and clicks. Out: pages, and requests through `clients`.

`dashboard_service` serves; `guard` checks every request (host, origin, session) before anything else sees it; `access`
has who is signed in, and alone gives out what can change the cluster; `clients` makes that, and the client that only
reads, which all pages have; `observer_service` asks the cluster, once for all browsers of one account; `frame` draws
what all pages share; `pages/` has a module per page; `widgets/` has what several pages use. Pages are NiceGUI elements;
what needs no click is text made by `markup`, which escapes everything.
Must not ask a cluster in a page what an observer has asked already, and must not keep a secret outside `access`.
"""
