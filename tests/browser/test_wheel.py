"""A wheel installed in another environment contains the complete app: package, pages and sample data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from playwright.sync_api import expect
from serving import AppServer

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has the wheel, and this environment's libraries but not its checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "env", with_pip=False, symlinks=os.name != "nt")
    scripts = "Scripts" if os.name == "nt" else "bin"
    python = folder / "env" / scripts / "python"
    query = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(subprocess.run([python, "-c", query], check=True, capture_output=True, text=True).stdout.strip())
    # A plain line makes the libraries importable without reading their .pth files, so the editable checkout stays out.
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    # --target, since pip would otherwise first uninstall the checkout from the environment that runs it.
    install = ["install", "--no-deps", "--no-index", "--quiet", "--target", str(site), str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True, capture_output=True)
    return python


def run(python: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([python, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def test_the_installed_package_is_not_the_checkout_and_finds_app_pages_and_samples(installed, tmp_path):
    code = (
        "import bsc_core, json; from bsc_core.paths import app_folder, sample_data_folder; "
        "print(json.dumps([bsc_core.__file__, str(app_folder()), str(sample_data_folder())]))"
    )
    done = run(installed, "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    package, app, samples = map(Path, json.loads(done.stdout))
    assert not package.is_relative_to(ROOT)
    assert (app / "app.py").is_file()
    assert (app / ".streamlit" / "config.toml").is_file()
    assert {path.name for path in (ROOT / "pages").glob("*.py")} == {path.name for path in (app / "pages").glob("*.py")}
    assert {path.name for path in (ROOT / "sample_data").iterdir()} <= {path.name for path in samples.iterdir()}


def test_the_installed_app_opens_in_a_browser_and_reads_its_sample_data(installed, tmp_path, chrome):
    server = AppServer(tmp_path, installed)
    page = chrome.new_page()
    try:
        server.start()
        page.goto(server.url)
        expect(page.get_by_role("button", name="Launch run")).to_be_visible()
        page.get_by_role("link", name="Data", exact=True).click()
        expect(page.get_by_text("838", exact=False).first).to_be_visible()
        expect(page.get_by_test_id("stException")).to_have_count(0)
        assert not server.faults()
    finally:
        page.close()
        server.stop()
        server.stop_jobs()


def test_the_installed_command_plans_on_the_sample_data(installed, static_encoder, tmp_path):
    samples = "from bsc_core.paths import sample_data_folder; print(sample_data_folder())"
    folder = Path(run(installed, "-c", samples, cwd=tmp_path).stdout.strip())
    config = tmp_path / "config.toml"
    settings = [
        'encoder.name = "static"',
        'batching.strategy = "random"',
        f'data.train = "{folder.as_posix()}/pairs.tsv"',
    ]
    config.write_text("\n".join(settings))
    done = run(installed, "-m", "bsc_core.cli", "plan", str(config), "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] > 700
