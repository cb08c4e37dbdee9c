// Recording and replaying of shape classes, on a CPU device that claims to have graphs.
#include "model/model.h"
#include "tests/model/recording.h"
#include "tests/model/support.h"

namespace laya::model {
namespace {

using test::value_of;

struct GraphModel {
  test::RecordingBackend backend{test::cpu_device(), test::shared_engine()};
  std::shared_ptr<Model> model;
  std::shared_ptr<Model> plain;  // the same model without graphs and without padding

  explicit GraphModel(const ModelOptions& options = {}) {
    const auto checkpoint = test::checkpoint_of("one_head_layer");
    model = value_of(Model::load(checkpoint, backend.engine, backend.device, options));
    plain = value_of(Model::load(checkpoint, test::shared_engine(), test::cpu_device()));
  }

  void check(const std::vector<Row>& rows) {
    const auto ours = value_of(model->predict(rows));
    const auto expected = value_of(plain->predict(rows));
    for (size_t i = 0; i < rows.size(); ++i) {
      CHECK(ours[i].logits == expected[i].logits);
      CHECK(ours[i].action_logits == expected[i].action_logits);
    }
  }
};

std::vector<Row> batch(std::initializer_list<int32_t> lengths, int32_t seed = 0) {
  std::vector<Row> rows;
  for (const int32_t length : lengths) {
    Row row;
    for (int32_t i = 0; i < length; ++i) row.ids.push_back((seed + 29 * i) % 512);
    row.markers = {0, length - 1};
    row.qtype = seed % 3;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

TEST_CASE("a shape class is run, then recorded, then replayed") {
  GraphModel test;
  test.check(batch({100}));
  CHECK(test.model->stats().graphs_captured == 0);
  test.check(batch({100}, 1));
  CHECK(test.model->stats().graphs_captured == 1);
  test.check(batch({100}, 2));
  CHECK(test.model->stats().graphs_captured == 1);
  CHECK(test.model->stats().graph_launches == 2);
  CHECK(test.backend.recording->captures == 1);
  CHECK(test.backend.recording->replays == 2);
}

TEST_CASE("one graph serves all batches of its class, bit for bit as without padding") {
  GraphModel test;
  test.check(batch({100, 60, 30}));
  test.check(batch({3, 100, 80, 9}, 1));
  test.check(batch({64, 65, 63}, 2));
  test.check(batch({181, 3, 4}, 3));
  CHECK(test.model->stats().graphs_captured == 1);
  CHECK(test.model->stats().graph_launches == 3);
}

TEST_CASE("the least recently used class is forgotten first") {
  GraphModel test({.max_graphs = 2});
  const auto first = batch({300});
  const auto second = batch({200});
  const auto third = batch({100});
  for (const auto& rows : {first, first, second, second}) test.check(rows);
  CHECK(test.backend.recording->graphs_alive == 2);
  test.check(first);  // used again: the second class is the older one now
  test.check(third);
  CHECK(test.backend.recording->graphs_alive == 1);
  test.check(first);
  CHECK(test.model->stats().graphs_captured == 2);
  test.check(second);
  CHECK(test.model->stats().graphs_captured == 2);
}

TEST_CASE("growing work memory throws graphs away, and they are recorded anew") {
  GraphModel test;
  test.check(batch({50}));
  test.check(batch({50}));
  CHECK(test.backend.recording->graphs_alive == 1);
  test.check(batch({500}));
  CHECK(test.backend.recording->graphs_alive == 0);
  test.check(batch({50}));
  CHECK(test.model->stats().graphs_captured == 2);
}

TEST_CASE("no graphs are recorded where the caller wants none") {
  GraphModel test({.max_graphs = 0});
  for (int i = 0; i < 3; ++i) test.check(batch({64}));
  CHECK(test.backend.recording->captures == 0);
}

TEST_CASE("after a warm-up the first batch of its class is a replay") {
  GraphModel test;
  const WarmupShape shape{.rows = 4, .tokens = 100, .options = 2};
  test::check_ok(test.model->warmup(std::span(&shape, 1)));
  const ModelStats before = test.model->stats();
  test.check(batch({90, 100, 110, 99}));
  CHECK(test.model->stats().graphs_captured == before.graphs_captured);
  CHECK(test.model->stats().graph_launches == before.graph_launches + 1);
}

TEST_CASE("models may be destroyed with graphs alive") {
  GraphModel test;
  test.check(batch({50}));
  test.check(batch({50}));
  test.model.reset();
  CHECK(test.backend.recording->graphs_alive == 0);
}

}  // namespace laya::model
