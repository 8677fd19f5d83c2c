// The matrices of experts are one parameter in memory; rules that orthogonalize or factor matrices treat each
// separately.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "optim/table.h"

namespace qtrain {
namespace {

constexpr std::int64_t kExperts = 3, kOut = 4, kIn = 6;

/// The values of parameters of one shape after some steps.
std::vector<float> trained(const std::string& optim, const std::vector<Shape>& shapes, Role role = Role::weight) {
  Ctx ctx;
  ParamStore store("weights");
  std::vector<Param*> params;
  for (std::size_t i = 0; i < shapes.size(); ++i)
    params.push_back(
        &store.declare({.name = "w" + std::to_string(i), .shape = shapes[i], .update = Update::trained, .role = role}));
  store.allocate();
  Optimizer optimizer(ctx, make_rule({.name = optim, .weight_decay = 0.1}), params);
  optimizer.allocate(ctx);
  optimizer.state().initialize(ctx, 0);
  DeviceNumbers sums({}, 2);
  const auto fill = [&](Tensor Param::*which, double step) {
    std::int64_t n = 0;
    for (Param* p : params)
      for (std::int64_t i = 0; i < p->value.numel(); ++i)
        (p->*which).as<float>()[i] = static_cast<float>(std::sin(0.7 * static_cast<double>(++n) * (1 + step)));
  };
  fill(&Param::value, 0);
  for (std::int64_t step = 1; step <= 3; ++step) {
    fill(&Param::grad, static_cast<double>(step));
    sums.clear(ctx);
    add_squares(ctx, params, sums[1]);
    optimizer.send(ctx, {.learning_rate = 0.05, .max_grad_norm = 0});
    optimizer.update(ctx, sums.all());
    optimizer.set_updates(step);
  }
  std::vector<float> values;
  for (const Param* p : params)
    values.insert(values.end(), p->value.as<float>(), p->value.as<float>() + p->value.numel());
  return values;
}

TEST(ExpertMatrices, AreUpdatedAsMatricesOfTheirOwn) {
  for (const char* optim : {"muon", "adafactor"}) {
    const std::vector<float> together = trained(optim, {{kExperts, kOut, kIn}}),
                             apart = trained(optim, std::vector<Shape>(kExperts, Shape{kOut, kIn}));
    EXPECT_EQ(together, apart) << optim;
    EXPECT_NE(together, trained("adamw_torch", {{kExperts, kOut, kIn}})) << optim;
  }
}

// One row per expert does not make a matrix.
TEST(ExpertBiases, AreVectorsToMuon) {
  const std::vector<Shape> biases{{kExperts, kOut}};
  EXPECT_EQ(trained("muon", biases, Role::vector), trained("adamw_torch", biases, Role::vector));
  EXPECT_NE(trained("muon", biases), trained("adamw_torch", biases));
}

}  // namespace
}  // namespace qtrain
