"""Planted false negatives found and decided from the pages alone, and decided pairs per minute.

    python benchmarks/triage.py [--planted 20] [--decisions 60] [--seconds-per-pair 1]

Copies of positive pairs of the sample data, with one word left out of each text, are added as pairs of other queries;
copies and originals are training rows. The script imports the file on the Data page, decides the suspects of the triage
on the Batches page by keyboard, with the right answer for each, and opens the New run page. A suspect is right if its
document belongs to the copy of the query, or the other way around.
Needs the test extras and Chromium (`python tests/browser/chromium.py`).
"""

import csv
import re
import sys
import tempfile
import time
from pathlib import Path

from measure import ROOT, parser, print_header, print_row

from bsc_core.paths import sample_data_folder
from bsc_core.reproduction.subsets import planted_copies

sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "browser")]
WAIT = 120_000  # milliseconds


def planted_file(number: int, path: Path) -> dict[tuple[str, str], str]:
    """Write the sample pairs and the copies; return the copy that each false negative (query, document) belongs to."""
    with (sample_data_folder() / "pairs.tsv").open(encoding="utf-8", newline="") as file:
        sample = list(csv.DictReader(file, delimiter="\t"))
    rows = [
        {"query_id": row["query_id"], "query": row["query"], "document_id": row["doc_id"]}
        | {"document": row["document"], "label": row["label"]}
        for row in sample
    ]
    positives = sum(float(row["label"]) > 0.5 for row in rows)
    copies = planted_copies(rows, number / positives, 0.5)
    original = {f"copy of {row['document_id']}": row for row in rows}
    trained = {original[copy["document_id"]]["query_id"] for copy in copies}
    dev = [name for name in dict.fromkeys(row["query_id"] for row in rows) if name not in trained][::8]
    for row in (*rows, *copies):
        row["split"] = "dev" if row["query_id"] in dev else "train"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows([*rows, *copies])
    wrong = {}
    for copy in copies:
        row = original[copy["document_id"]]
        wrong |= dict.fromkeys(
            [(row["query"], copy["document"]), (copy["query"], row["document"])], copy["document_id"]
        )
    return wrong


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--planted", type=int, default=20)
    options.add_argument("--decisions", type=int, default=60)
    options.add_argument("--seconds-per-pair", type=float, default=1.0, help="reading time added to each decision")
    given = options.parse_args()
    from chromium import executable
    from playwright.sync_api import expect, sync_playwright
    from serving import AppServer

    folder = Path(tempfile.mkdtemp())
    wrong = planted_file(given.planted, folder / "planted.tsv")
    server = AppServer(folder)
    server.start()
    start = time.monotonic()
    try:
        with sync_playwright() as playwright:
            page = playwright.chromium.launch(executable_path=executable(), args=["--no-sandbox"]).new_page()
            page.set_default_timeout(WAIT)
            expect.set_options(timeout=WAIT)
            page.goto(f"{server.url}/data")
            page.get_by_text("Import a dataset").click()
            page.locator("input[type=file]").first.set_input_files(folder / "planted.tsv")
            page.get_by_role("button", name="Use these columns", exact=True).click()
            expect(page.get_by_role("combobox", name="Dataset", exact=True)).to_have_value(re.compile("^planted-"))
            page.get_by_role("button", name="Inspect the batches").click()
            card = page.get_by_role("group", name="Pair to decide.")
            card.focus()
            triage, found, decided = time.monotonic(), set(), 0
            for number in range(given.decisions):
                expect(page.get_by_text(re.compile(rf"^\d+ of \d+ · {number} decided"))).to_be_visible()
                query, _, document = card.locator(".text").all_inner_texts()
                copy = wrong.get((query, document))
                time.sleep(given.seconds_per_pair)
                card.press("p" if copy else "n")
                decided += 1
                found |= {copy} if copy else set()
            per_minute = 60 * decided / (time.monotonic() - triage)
            page.get_by_role("button", name="Train with this plan").click()
            sentence = page.get_by_text(re.compile(r"decisions applied:")).first
            expect(sentence).to_be_visible()
            applied = re.sub(r"^\D*", "", sentence.inner_text())  # without the name of the icon
    finally:
        server.stop()
        server.stop_jobs()
    minutes = (time.monotonic() - start) / 60
    print_header("planted copies", "found", "decided pairs", "minutes in all", "decisions per minute")
    print_row(given.planted, len(found), decided, f"{minutes:.1f}", f"{per_minute:.0f}")
    print(applied)


if __name__ == "__main__":
    main()
