// Updates against those of torch, transformers and bitsandbytes (make_optimizer_goldens.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "core/formats/json.h"
#include "core/formats/safetensors.h"
#include "optim/table.h"
#include "tests/errors.h"

namespace qtrain {
namespace {

using ::testing::HasSubstr;

const std::string kGoldens = QTRAIN_SOURCE_DIR "/tests/optim/goldens/optimizers";

Shape extents_of(const Json& extents) {
  return extents.size() == 1 ? Shape(extents[0].get<int>()) : Shape(extents[0].get<int>(), extents[1].get<int>());
}

/// Selects the random numbers, which are the same as in the script.
struct Draw {
  std::uint32_t step, which;
  float scale;
};
void fill(const Tensor& to, const Draw& draw) {
  for (std::int64_t i = 0; i < to.numel(); ++i) {
    std::uint32_t h = static_cast<std::uint32_t>(i + 1) * 2654435761u + (draw.step + 1) * 2246822519u +
                      (draw.which + 1) * 3266489917u;
    h = (h ^ (h >> 15)) * 2246822519u;
    const float v = (static_cast<float>(h >> 16) - 32768.0F) / 32768.0F, cube = v * v * v;
    to.as<float>()[i] = cube * draw.scale;
  }
}

/// The parameters of a golden case and their optimizer.
class GoldenRun {
 public:
  GoldenRun(const Json& settings, const Json& golden) : settings_(settings), golden_(golden) {
    for (const auto& [name, shape] : golden["shapes"].items())
      params_.push_back(&store_.declare({.name = name,
                                         .shape = extents_of(shape),
                                         .update = Update::trained,
                                         .decay = shape.size() == 2 ? Decay::yes : Decay::no,
                                         .role = name == "table" ? Role::embedding : Role::weight}));
    store_.allocate();
    optimizer_ = std::make_unique<Optimizer>(ctx_,
                                             make_rule({.name = golden["optim"],
                                                        .arguments = golden["optim_args"],
                                                        .beta1 = settings["betas"][0],
                                                        .beta2 = settings["betas"][1],
                                                        .eps = settings["eps"],
                                                        .weight_decay = settings["weight_decay"]}),
                                             params_);
    optimizer_->allocate(ctx_);
    optimizer_->state().initialize(ctx_, 0);
    draw(0);
  }

  void draw(std::uint32_t step) {
    for (std::uint32_t i = 0; i < params_.size(); ++i)
      fill(step == 0 ? params_[i]->value : params_[i]->grad,
           {step, i, step == 0 ? 0.5F : settings_["scales"][step - 1].get<float>()});
  }
  void step(std::uint32_t number, double loss = 1) {
    draw(number);
    sums_.clear(ctx_);
    *sums_[0].as<double>() = loss;
    add_squares(ctx_, params_, sums_[1]);
    optimizer_->send(ctx_, {.learning_rate = settings_["rates"][number - 1], .max_grad_norm = settings_["max_norm"]});
    optimizer_->update(ctx_, sums_.all());
    if (std::isfinite(loss)) optimizer_->set_updates(number);
  }
  std::string contents() const {
    std::string bytes;
    for (const auto* params : {&store_.all(), &std::as_const(optimizer_->state()).all()})
      for (const Param& p : *params) bytes.append(reinterpret_cast<const char*>(p.value.data), p.value.bytes());
    return bytes;
  }
  std::size_t steps() const { return settings_["rates"].size(); }
  std::vector<Param*>& params() { return params_; }
  ParamStore& state() { return optimizer_->state(); }
  std::string name() const { return golden_["name"]; }

 private:
  Json settings_, golden_;
  Ctx ctx_;
  ParamStore store_{"weights"};
  std::vector<Param*> params_;
  DeviceNumbers sums_{{}, 2};
  std::unique_ptr<Optimizer> optimizer_;
};

double largest_difference(const float* got, const float* want, std::int64_t n) {
  double largest = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(static_cast<double>(got[i]) - want[i]));
  return largest;
}

/// The names that torch, transformers and bitsandbytes give to the state.
const char* reference_name(const std::string& state) {
  static const std::map<std::string, const char*> kNames{{"exp_avg", "state1"}, {"exp_avg_sq", "state2"}};
  const auto found = kNames.find(state);
  return found == kNames.end() ? state.c_str() : found->second;
}

class SmallOptimizers : public ::testing::Test {
 protected:
  const Json settings_ = read_json(kGoldens + ".json");
  const SafetensorsReader tensors_{kGoldens + ".safetensors"};

  const Json& named(const std::string& name) const {
    for (const Json& golden : settings_["cases"])
      if (golden["name"] == name) return golden;
    throw std::runtime_error("no such case");
  }
  void follow(const Json& golden, double tolerance) const {
    SCOPED_TRACE(golden["name"].get<std::string>());
    GoldenRun run(settings_, golden);
    for (std::uint32_t step = 1; step <= run.steps(); ++step) {
      run.step(step);
      for (const Param* p : run.params()) {
        const ConstTensor want = tensors_.at(run.name() + "." + p->spec.name).slice(step - 1, 1);
        ASSERT_LE(largest_difference(p->value.as<float>(), want.as<float>(), p->value.numel()), tolerance)
            << p->spec.name << " after step " << step;
      }
    }
    for (const Param& s : run.state().all()) {
      const std::size_t dot = s.spec.name.find('.');
      const std::string param = s.spec.name.substr(dot + 1), state = s.spec.name.substr(0, dot);
      std::string name = run.name() + "." + param + "." + state;
      if (!tensors_.contains(name)) name = run.name() + "." + param + "." + reference_name(state);
      EXPECT_LE(largest_difference(s.value.as<float>(), tensors_.at(name).as<float>(), s.value.numel()), 1e-6) << name;
    }
  }
};

TEST_F(SmallOptimizers, UpdateAsTheirReferences) {
  for (const char* name : {"lion", "sgd", "sgd_momentum", "sgd_nesterov", "adafactor"}) follow(named(name), 1e-6);
}

// Its iteration rounds to bf16 several times per step; a value that rounds the other way changes by 2^-8 of itself, and
// the learning rate is at most 2e-2.
TEST_F(SmallOptimizers, MuonFollowsTorchAsFarAsBf16Does) {
  for (const char* name : {"muon", "muon_arguments"}) follow(named(name), 4e-4);
}

TEST_F(SmallOptimizers, NothingChangesWhereASumIsNotFinite) {
  for (const Json& golden : settings_["cases"]) {
    SCOPED_TRACE(golden["name"].get<std::string>());
    GoldenRun run(settings_, golden);
    run.step(1);
    const std::string before = run.contents();
    for (const double loss : {NAN, INFINITY}) run.step(2, loss);
    EXPECT_TRUE(run.contents() == before);
    run.step(2);
    EXPECT_FALSE(run.contents() == before);
  }
}

/// The number of the n values that differ by more than `tolerance`.
template <class T>
std::int64_t count_far(const T* got, const T* want, std::int64_t n, double tolerance) {
  std::int64_t far = 0;
  for (std::int64_t i = 0; i < n; ++i)
    far += std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i])) > tolerance;
  return far;
}

// The same arithmetic in a different order: occasionally a value is so close to the midpoint of two codes that it gets
// the other one.
TEST_F(SmallOptimizers, CodedOnesFollowBitsandbytes) {
  for (const char* name : {"adamw_8bit", "lion_8bit"}) {
    SCOPED_TRACE(name);
    GoldenRun run(settings_, named(name));
    for (std::uint32_t step = 1; step <= run.steps(); ++step) run.step(step);
    for (const Param* p : run.params()) {
      const ConstTensor want = tensors_.at(run.name() + "." + p->spec.name);
      const std::int64_t n = p->value.numel(), few = p->spec.name == "coded" ? n / 1000 : 0;
      EXPECT_LE(count_far(p->value.as<float>(), want.as<float>(), n, 1e-6), few) << p->spec.name;
    }
    for (const auto& [state, number] : std::map<std::string, std::string>{{"exp_avg", "1"}, {"exp_avg_sq", "2"}}) {
      const Param* codes = run.state().find(state + ".coded");
      if (!codes) continue;
      const Param* absmax = run.state().find(state + "_absmax.coded");
      ASSERT_TRUE(codes->spec.dtype == DType::u8 && absmax != nullptr && absmax->value.numel() == 17);
      const auto want = [&](const char* what) { return tensors_.at(run.name() + ".coded." + what + number); };
      const std::int64_t n = codes->value.numel();
      EXPECT_LE(count_far(codes->value.as<std::uint8_t>(), want("state").as<std::uint8_t>(), n, 0), n / 1000);
      EXPECT_LE(largest_difference(absmax->value.as<float>(), want("absmax").as<float>(), 17), 1e-6);
    }
  }
}

TEST_F(SmallOptimizers, SmallParametersAndEmbeddingsKeepF32) {
  for (const char* name : {"adamw_8bit", "lion_8bit"}) {
    GoldenRun run(settings_, named(name));
    for (const char* param : {"table", "small"}) {
      EXPECT_EQ(run.state().find(std::string("exp_avg.") + param)->spec.dtype, DType::f32) << name << param;
      EXPECT_EQ(run.state().find(std::string("exp_avg_absmax.") + param), nullptr);
    }
    EXPECT_EQ(run.state().find("exp_avg.coded")->spec.dtype, DType::u8);
  }
}

std::string complaint(const OptimizerOptions& options) {
  return test::error_if_any(ErrorKind::usage, [&] { make_rule(options); });
}

TEST(OptimizerTable, KnowsWhatIsHere) {
  for (const std::string_view name : available_optimizers())
    EXPECT_EQ(complaint({.name = std::string(name)}), "no error") << name;
  const std::string galore = complaint({.name = "galore_adamw"});
  EXPECT_THAT(galore, HasSubstr("\"galore_adamw\" is not available"));
  EXPECT_THAT(galore, HasSubstr("adamw_8bit"));
  EXPECT_EQ(find_optimizer("adam"), nullptr);
  EXPECT_EQ(find_optimizer("paged_lion_8bit")->pages, Pages::where_needed);
  EXPECT_EQ(find_optimizer("paged_lion_8bit")->rule, find_optimizer("lion_8bit")->rule);
  EXPECT_EQ(find_optimizer("adamw_8bit")->pages, Pages::never);
}

TEST(OptimizerTable, RefusesArguments) {
  const auto of = [](const char* name, const char* arguments) {
    return complaint({.name = name, .arguments = arguments});
  };
  EXPECT_THAT(of("adamw_torch", "beta1=0.5"), HasSubstr("has no argument \"beta1\""));
  EXPECT_THAT(of("sgd", "weight_decay=0.5"), HasSubstr("it takes momentum, dampening, nesterov"));
  EXPECT_THAT(of("sgd", "momentum"), HasSubstr("\"momentum\" is not key=value"));
  EXPECT_THAT(of("sgd", "momentum=0.9,"), HasSubstr("comma"));
  EXPECT_THAT(of("sgd", "momentum=0.9,momentum=0.8"), HasSubstr("twice"));
  EXPECT_THAT(of("sgd", "momentum=-1"), HasSubstr("at least 0"));
  EXPECT_THAT(of("sgd", "momentum=fast"), HasSubstr("\"fast\""));
  EXPECT_THAT(of("sgd", "nesterov=maybe"), HasSubstr("true or false"));
  EXPECT_THAT(of("sgd", "nesterov=true"), HasSubstr("momentum above 0"));
  EXPECT_THAT(of("muon", "ns_steps=2.5"), HasSubstr("whole number"));
  EXPECT_THAT(of("muon", "adjust_lr_fn=best"), HasSubstr("match_rms_adamw"));
  EXPECT_EQ(of("sgd", " momentum = 0.9 , nesterov = True "), "no error");
}

}  // namespace
}  // namespace qtrain
