"""The contract of prefill: every case on every place and solution. `--target` chooses the places."""

import pytest


@pytest.mark.contract("prefill")
def test_contract(contract_report):
    assert contract_report.ok, str(contract_report)
