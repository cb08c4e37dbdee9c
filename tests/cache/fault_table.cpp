// The table, and the listener of doctest that prints it.
#include "tests/cache/fault_table.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <vector>

namespace laya::cache::test {
namespace {

std::deque<FaultRow>& rows() {
  static std::deque<FaultRow> table;  // A deque: references stay valid.
  return table;
}

void print_table() {
  if (rows().empty()) return;
  std::vector<FaultRow> sorted(rows().begin(), rows().end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const FaultRow& a, const FaultRow& b) { return a.kind < b.kind; });
  std::printf("| kind | injected | times | wrong results | failed launches | entries lost |\n");
  std::printf("|---|---|---|---|---|---|\n");
  for (const FaultRow& row : sorted) {
    const std::string launches =
        row.failed_launches < 0 ? "-" : std::to_string(row.failed_launches);
    const std::string evicted =
        row.evicted > 0 ? ", " + std::to_string(row.evicted) + " evicted" : "";
    std::printf("| %s | %s | %lld | %lld | %s | %lld%s |\n", row.kind.c_str(), row.injected.c_str(),
                static_cast<long long>(row.times), static_cast<long long>(row.wrong),
                launches.c_str(), static_cast<long long>(row.lost), evicted.c_str());
  }
}

struct TablePrinter final : doctest::IReporter {
  explicit TablePrinter(const doctest::ContextOptions&) {}
  void test_run_end(const doctest::TestRunStats& stats) override {
    print_table();
    if (!rows().empty() && stats.numTestCasesFailed > 0) {
      std::printf("A test has failed, so the table may be wrong.\n");
    }
  }

  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};

REGISTER_LISTENER("fault_table", 1, TablePrinter);

}  // namespace

FaultRow& fault_row(const std::string& kind, const std::string& injected) {
  for (FaultRow& row : rows()) {
    if (row.kind == kind && row.injected == injected) return row;
  }
  rows().push_back({kind, injected});
  return rows().back();
}

}  // namespace laya::cache::test
