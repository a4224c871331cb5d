"""The contract of decode: every case on every place and solution. `--target` chooses the places."""

import pytest


@pytest.mark.contract("decode")
def test_contract(contract_report):
    assert contract_report.ok, str(contract_report)
