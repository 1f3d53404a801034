"""Names that no team may have in addresses."""

RESERVED_SLUGS = frozenset(
    {
        "api", "assets", "static", "sign-in", "sign-out", "link", "join", "settings", "account", "admin", "site",
        "nodes", "teams", "new", "health", "docs", "help", "about", "me", "keys", "index", "favicon", "robots",
    }
)  # fmt: skip
"""First parts of the addresses of pages, which no team may use as its slug."""
