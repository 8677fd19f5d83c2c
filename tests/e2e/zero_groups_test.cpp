// Training state that is sharded among the ranks of a group and replicated across groups.
#include "tests/e2e/zero.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

class ZeroGroups : public Zero {
 protected:
  /// With 12 rows per update, the last update of an epoch has 9, so the last two ranks of the second group have less
  /// work.
  Json base() const {
    Json config = Zero::base();
    config["gradient_accumulation_steps"] = 12;
    return config;
  }
  static Json grouped(Json config, int ranks, int group, int stage) {
    config.update({{"nproc", ranks},
                   {"gradient_accumulation_steps", 12 / ranks},
                   {"zero_stage", stage},
                   {"zero_group_size", group},
                   {"ddp_timeout", 60}});
    return config;
  }
  void expect_the_same_in_groups(const Json& config) const {
    const auto alone = results(config);
    for (const auto& [ranks, stage] : {std::pair(4, 2), {4, 3}})
      EXPECT_EQ(results(grouped(config, ranks, 2, stage)), alone) << ranks << " ranks, stage " << stage;
  }
};

TEST_F(ZeroGroups, AllWeightsHaveTheSameBits) {
  expect_the_same_in_groups(base());
}

// Rows are cut into pieces that are not a multiple of the number of groups; groups of one rank are like no sharding.
TEST_F(ZeroGroups, ThreeGroupsAndOptimizerStatesHaveTheSameBits) {
  Json config = base();
  config["save_steps"] = 4;
  const auto alone = results(config);
  EXPECT_EQ(results(grouped(config, 6, 2, 1)), alone);
  EXPECT_EQ(results(grouped(config, 3, 1, 3)), alone);
}

TEST_F(ZeroGroups, WholeMatricesHaveTheSameBits) {
  Json config = base();
  config["optim"] = "muon";
  expect_the_same_in_groups(config);
}

TEST_F(ZeroGroups, AdaptersHaveTheSameBits) {
  Json config = base();
  config.update(adapter());
  expect_the_same_in_groups(config);
}

TEST_F(ZeroGroups, AdaptersOfQuantizedWeightsHaveTheSameBits) {
  Json config = base();
  config.update(adapter());
  config.update(golden());
  config["load_in_4bit"] = true;
  expect_the_same_in_groups(config);
}

// Gradients are clipped by their norm: the norm of only one group would change the curve.
TEST_F(ZeroGroups, WithoutAnOrderOnlyTheLastBitsDiffer) {
  Json config = base();
  config.update({{"deterministic_reduce", false}, {"save_strategy", "no"}, {"max_grad_norm", 0.05}});
  train_ok(folder_.path(), config);
  const auto numbers = [&](const char* key) { return column(history(at("out"), "loss"), key); };
  const std::vector<double> losses = numbers("loss"), norms = numbers("grad_norm");
  for (const int stage : {1, 2, 3}) {
    fs::remove_all(at("out"));
    train_ok(folder_.path(), grouped(config, 4, 2, stage));
    ASSERT_EQ(numbers("loss").size(), losses.size());
    // float32 sums of gradients in a different order, over four updates.
    for (std::size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(numbers("loss")[i], losses[i], 1e-4) << "stage " << stage;
      EXPECT_NEAR(numbers("grad_norm")[i], norms[i], 1e-4 * norms[i]) << "stage " << stage;
    }
  }
}

TEST_F(ZeroGroups, RoundedGradientsInOrderHaveTheSameBits) {
  Json config = base();
  config.update({{"max_steps", 2}, {"communication_data_type", "bf16"}});
  const auto alone = results(config);
  EXPECT_EQ(results(grouped(config, 4, 2, 3)), alone);
}

TEST_F(ZeroGroups, ARunGoesOnWithAnotherDivision) {
  const Json config = base();
  const auto alone = results(config);
  const std::vector<Json> runs{grouped(config, 4, 2, 3), grouped(config, 2, 0, 2), grouped(config, 4, 0, 1),
                               grouped(config, 6, 3, 2)};
  for (const auto& [from, to] : {std::pair(0, 1), {1, 0}, {2, 3}}) {
    fs::remove_all(at("out"));
    train_ok(folder_.path(), runs[static_cast<std::size_t>(from)]);
    const Outcome outcome =
        train_ok(folder_.path(), runs[static_cast<std::size_t>(to)],
                 {"--resume", at("out/checkpoint-2").string(), "output_dir=" + at("more").string()});
    EXPECT_THAT(outcome.err, HasSubstr("resumed from"));
    EXPECT_EQ(tensor_files(at("more")), alone[0]) << from << " to " << to;
    fs::remove_all(at("more"));
  }
}

// Each rank has half of everything, as with two ranks in total.
TEST_F(ZeroGroups, MemoryIsThatOfThePlan) {
  Json config = base();
  config.update({{"save_strategy", "no"}, {"max_steps", 1}});
  for (const bool in_order : {false, true}) {
    config["deterministic_reduce"] = in_order;
    const Json pairs = planned_memory(grouped(config, 4, 2, 3)), two = planned_memory(grouped(config, 2, 0, 3));
    for (const char* part : {"weights", "optimizer", "gradients", "gathered_units"})
      EXPECT_EQ(pairs.at(part), two.at(part)) << part;
  }
  planned_memory(grouped(config, 4, 2, 1));
  config.update({{"communication_data_type", "bf16"}, {"deterministic_reduce", false}});
  planned_memory(grouped(config, 4, 2, 2));
}

TEST_F(ZeroGroups, OfASizeThatDoesNotDivideTheRanksAreRefused) {
  write_file(at("run.json"), dump_json(grouped(base(), 4, 3, 2)));
  const Outcome outcome = qtrain({.words = {at("run.json").string()}});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("zero_group_size is 3, which does not divide the 4 ranks"));
}

}  // namespace
}  // namespace qtrain::e2e
