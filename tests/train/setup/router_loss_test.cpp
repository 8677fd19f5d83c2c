#include <gtest/gtest.h>

#include "tests/core/temp_folder.h"
#include "tests/golden/data.h"
#include "train/setup/model_setup.h"

namespace qtrain::testing {
namespace {

constexpr double kOfModel = 0.001;  // in config.json of qwen3_moe, which does not enable the loss

struct Expected {
  bool is_on;
  double coefficient;
};

void expect(const RouterLossRequest& request, const char* folder, const Expected& expected) {
  ModelConfig model = load_model_config(kData / folder);
  const Json before = model.json;
  apply_router_loss(request, model);
  EXPECT_EQ(model.is_balanced(), expected.is_on);
  EXPECT_EQ(model.experts->balance_coefficient, expected.coefficient);
  if (request.mode == RouterLossMode::trainer && !request.coefficient && !request.is_on) {
    EXPECT_EQ(model.json, before) << "the model's own config.json is saved";
  } else {
    EXPECT_EQ(model.json["output_router_logits"], expected.is_on);
    EXPECT_EQ(model.json["router_aux_loss_coef"], expected.coefficient);
  }
}

// SFTTrainer enables the loss in the model's config if there is a coefficient.
TEST(RouterLoss, IsOnInTrlsModeUnlessItsCoefficientIsZero) {
  expect({}, "qwen3_moe", {true, kOfModel});
  expect({.coefficient = 0.3}, "qwen3_moe", {true, 0.3});
  expect({.coefficient = 0}, "qwen3_moe_balanced", {false, 0});
  expect({.is_on = false}, "qwen3_moe_balanced", {false, 0.5});
}

TEST(RouterLoss, IsThatOfTheModelInTrainersMode) {
  constexpr RouterLossMode kTrainer = RouterLossMode::trainer;
  expect({.mode = kTrainer}, "qwen3_moe", {false, kOfModel});
  expect({.mode = kTrainer}, "qwen3_moe_balanced", {true, 0.5});
  expect({.coefficient = 0.3, .mode = kTrainer}, "qwen3_moe", {true, 0.3});
  expect({.coefficient = 0, .mode = kTrainer}, "qwen3_moe_balanced", {false, 0});
  expect({.is_on = true, .mode = kTrainer}, "qwen3_moe", {true, kOfModel});
}

TEST(RouterLoss, IsForModelsWithExperts) {
  ModelConfig dense = load_model_config(kData / "qwen3_hd8");
  EXPECT_EQ(error_of([&] { apply_router_loss({.coefficient = 0.1}, dense); }).kind(), ErrorKind::usage);
  EXPECT_NO_THROW(apply_router_loss({}, dense));
  EXPECT_NO_THROW(apply_router_loss({.coefficient = 0}, dense));
  EXPECT_NO_THROW(apply_router_loss({.coefficient = 0.1, .mode = RouterLossMode::trainer}, dense));
  EXPECT_FALSE(dense.is_balanced());
}

}  // namespace
}  // namespace qtrain::testing
