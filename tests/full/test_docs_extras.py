"""The pages whose code needs an extra, from top to bottom."""

import pytest

from doc_pages import PAGES, ROOT, Session, blocks, draw, fill

needy = [page for page in PAGES if any(block.condition == "every extra" for block in blocks(page))]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("page", needy, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_runs(page, prolip, tmp_path):
    from prolip import FewShotClassifier

    draw(tmp_path)
    FewShotClassifier(store=False).fit(tmp_path / "photos").save(tmp_path / "my-model")
    fill(tmp_path, page)
    assert Session(page, prolip, every_extra=True).run()
