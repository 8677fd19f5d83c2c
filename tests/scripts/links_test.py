#!/usr/bin/env python3
"""Links between pages lead to files and headings that exist. The site's build does not look at headings.

    python3 tests/scripts/links_test.py"""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md"), *ROOT.glob("bench/**/*.md")])


def prose(page):
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)


def anchors(text):
    """The anchors that GitHub and mkdocs create for the headings of a page."""
    headings = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in re.findall(r"^#+ (.*)$", text, re.M)]
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


def broken(page, text, anchors_of):
    for path, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)#?([^)\s]*)\)", text):
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"{path} does not exist"
        elif anchor and target.suffix == ".md" and anchor not in anchors_of(target):
            yield f"{path} has no heading #{anchor}"


class Links(unittest.TestCase):
    def test_lead_somewhere(self):
        self.assertGreater(len(PAGES), 40)
        for page in PAGES:
            found = [b for b in broken(page, prose(page), lambda target: anchors(prose(target)))
                     if not b.startswith("../../commits")]  # of the hosting site
            self.assertEqual(found, [], page.relative_to(ROOT))

    def test_what_leads_nowhere_is_found(self):
        headings = anchors("# One `two`\n\n## Three, [four](five.md)!\n")
        self.assertEqual(headings, {"one-two", "three-four"})
        text = "[a](README.md#three-four) [b](README.md#five) [c](nothing.md) [d](mailto:x) [e](#one-two)"
        self.assertEqual(list(broken(ROOT / "README.md", text, lambda _: headings)),
                         ["README.md has no heading #five", "nothing.md does not exist"])


if __name__ == "__main__":
    unittest.main()
