// Updates against those of torch.optim.AdamW and clip_grad_norm_ (make_adamw_goldens.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/json.h"
#include "optim/optimizer.h"

namespace qtrain {
namespace {

using Values = std::vector<double>;

template <class T>
void put(const Tensor& to, const Values& values) {
  std::transform(values.begin(), values.end(), to.as<T>(), [](double x) { return static_cast<T>(x); });
}

Shape shape_of(const Json& extents) {
  return extents.size() == 1 ? Shape(extents[0].get<int>()) : Shape(extents[0].get<int>(), extents[1].get<int>());
}

template <class T>
double largest_difference(const Tensor& tensor, const Values& expected) {
  EXPECT_EQ(static_cast<std::size_t>(tensor.numel()), expected.size());
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(tensor.as<T>()[i]) - expected[i]));
  return largest;
}

/// Two parameters, one with weight decay, and the optimizer of one golden case.
class Updates {
 public:
  Updates(const Json& shapes, const Json& golden, DType dtype) : golden_(golden) {
    for (const auto& [name, shape] : shapes.items())
      params_.push_back(&store_.declare({.name = name,
                                         .shape = shape_of(shape),
                                         .dtype = dtype,
                                         .update = Update::trained,
                                         .decay = name == "decayed" ? Decay::yes : Decay::no}));
    store_.allocate();
    optimizer_ = make_adamw(ctx_, params_,
                            {.beta1 = golden["betas"][0],
                             .beta2 = golden["betas"][1],
                             .eps = golden["eps"],
                             .weight_decay = golden["weight_decay"]});
    optimizer_->state().allocate();
  }

  /// `tolerance` is absolute, for values of size 1.
  template <class T>
  void follow(double tolerance) {
    for (Param* p : params_) put<T>(p->value, golden_["start"][p->spec.name]);
    for (const Json& step : golden_["steps"]) {
      for (Param* p : params_) put<T>(p->grad, step["grads"][p->spec.name]);
      const double norm = global_grad_norm(ctx_, params_);
      EXPECT_NEAR(norm, step["norm"], 1e-6 * step["norm"].get<double>());
      optimizer_->step(
          ctx_, {.learning_rate = step["learning_rate"], .grad_scale = clip_coefficient(norm, golden_["max_norm"])});
      for (Param* p : params_)
        EXPECT_LE(largest_difference<T>(p->value, step["values"][p->spec.name]), tolerance)
            << p->spec.name << " after update " << optimizer_->updates();
    }
    for (Param* p : params_)
      for (const char* moment : {"exp_avg", "exp_avg_sq"}) {
        const Param* state = optimizer_->state().find(std::string(moment) + "." + p->spec.name);
        ASSERT_NE(state, nullptr);
        EXPECT_LE(largest_difference<T>(state->value, golden_["moments"][p->spec.name][moment]), tolerance);
      }
  }

 private:
  Json golden_;
  Ctx ctx_;
  ParamStore store_{"weights"};
  std::vector<Param*> params_;
  std::unique_ptr<Optimizer> optimizer_;
};

TEST(AdamW, UpdatesAsTorch) {
  const Json goldens = read_json(QTRAIN_SOURCE_DIR "/tests/optim/goldens/adamw.json");
  ASSERT_EQ(goldens["cases"].size(), 3u);
  for (const Json& golden : goldens["cases"]) {
    SCOPED_TRACE(golden["name"].get<std::string>());
    Updates(goldens["shapes"], golden, DType::f64).follow<double>(1e-14);  // the same formula in another order
    // Torch's own f32 run is as far from f64; another order of operations may be twice that and a last bit off.
    Updates(goldens["shapes"], golden, DType::f32).follow<float>(2 * golden["f32_spread"].get<double>() + 1.2e-7);
  }
}

TEST(AdamW, ClipsOnlyWhatIsTooLongAndNeverWithoutALimit) {
  EXPECT_EQ(clip_coefficient(0.5, 1.0), 1.0);
  EXPECT_EQ(clip_coefficient(1e30, 0.0), 1.0);
  EXPECT_DOUBLE_EQ(clip_coefficient(4.0, 1.0), 1.0 / (4.0 + 1e-6));
}

}  // namespace
}  // namespace qtrain
