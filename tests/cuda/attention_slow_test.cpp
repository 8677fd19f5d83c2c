// Attention with sizes that take long under the harness.
#include "tests/cuda/schedules.h"
#include "tests/kernels/op_run.h"

namespace qtrain::testing {
namespace {

struct SlowCase {
  AttentionSizes sizes;
  std::vector<DType> dtypes = {DType::f32, DType::bf16, DType::f16};
};
void PrintTo(const SlowCase& c, std::ostream* out) {
  *out << c.sizes.name;
}

class CudaAttention : public ::testing::TestWithParam<SlowCase> {};

Pass on_cuda(const OpCase& op, DType d) {
  const OnDevice device;
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  Pass p = run(op, d, ctx, Sink::Mode::store);
  ctx.synchronize();
  for (const Arrays* list : {&p.outputs, &p.gradients})
    for (const Array& a : *list) a.bytes();
  return p;
}

TEST_P(CudaAttention, FollowsDouble) {
  const OpCase op = attention_case(GetParam().sizes);
  Ctx cpu({}, MatmulPrecision::storage, 2);
  const Pass want = run(op, DType::f64, cpu, Sink::Mode::store);
  for (const DType d : GetParam().dtypes) {
    const Pass got = on_cuda(op, d);
    const std::string dtype(name_of(d));
    for (std::size_t i = 0; i < want.outputs.size(); ++i)
      expect_close(got.outputs[i].values(), want.outputs[i].values(), tolerance_of(d),
                   dtype + " output " + std::to_string(i));
    for (std::size_t i = 0; i < want.gradients.size(); ++i)
      expect_close(got.gradients[i].values(), want.gradients[i].values(), tolerance_of(d),
                   dtype + " d" + op.inputs[i].name);
  }
}

/// Five query heads on one key head and nine on three, at every head size: documents of 1, 17, 0 and 80 tokens, with
/// and without a window. Also 4,097 tokens: as one document, and after short ones with a window.
std::vector<SlowCase> slow_cases() {
  std::vector<SlowCase> cases;
  for (const std::int64_t D : {64, 80, 96, 128, 256})
    for (const std::int64_t Hkv : {1, 3})
      for (const std::int64_t window : {0, 23}) {
        const std::int64_t Hq = Hkv == 1 ? 5 : 9;
        cases.push_back({{.name = "heads" + std::to_string(Hq) + "on" + std::to_string(Hkv) + "_of" +
                                  std::to_string(D) + (window > 0 ? "_window" : ""),
                          .cu = {0, 1, 18, 18, 98},
                          .Hq = Hq,
                          .Hkv = Hkv,
                          .D = D,
                          .window = window}});
      }
  cases.push_back({{.name = "tokens4097", .cu = {0, 4097}, .Hq = 1, .Hkv = 1, .D = 64}, {DType::bf16}});
  cases.push_back(
      {{.name = "tokens4097_window", .cu = {0, 17, 17, 18, 4097}, .Hq = 5, .Hkv = 1, .D = 64, .window = 128},
       {DType::bf16}});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(All, CudaAttention, ::testing::ValuesIn(slow_cases()),
                         [](const auto& info) { return info.param.sizes.name; });

}  // namespace
}  // namespace qtrain::testing
