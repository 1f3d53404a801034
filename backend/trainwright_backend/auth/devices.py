"""The names of browsers and systems, from what a client says of itself in `User-Agent` (RFC 9110, section 10.1.5).

The header is a claim: names are shown to the person whose session it is, and decide nothing.
"""

LONGEST = 80

_BROWSERS = {
    "Edg": "Edge",
    "OPR/": "Opera",
    "SamsungBrowser/": "Samsung Internet",
    "Firefox/": "Firefox",
    "FxiOS/": "Firefox",
    "CriOS/": "Chrome",
    "Chrome/": "Chrome",
    "Safari/": "Safari",
}
"""Browsers by a text that only they contain, in this order: most also name those that they resemble."""

_SYSTEMS = {
    "iPhone": "iPhone",
    "iPad": "iPad",
    "Android": "Android",
    "CrOS": "ChromeOS",
    "Windows": "Windows",
    "Mac OS X": "macOS",
    "Linux": "Linux",
}


def device_name(user_agent: str) -> str:
    """`Firefox on Linux`; for other clients, such as the SDK, their own name; empty if there is none."""
    browser, system = (
        next((name for mark, name in names.items() if mark in user_agent), "")
        for names in (_BROWSERS, _SYSTEMS)
    )
    if not browser:
        product = user_agent.partition(" ")[0]
        return "".join(letter for letter in product if letter.isprintable())[:LONGEST]
    return f"{browser} on {system}" if system else browser
