#include "tests/cuda/schedules.h"
#include "tests/kernels/op_run.h"

/// Every op on the CUDA device against the f64 specification, under several orders of threads, blocks and copies.
namespace qtrain::testing {
namespace {

class CudaOp : public ::testing::TestWithParam<const OpCase*> {
 protected:
  Pass expected() const {
    Ctx cpu({}, MatmulPrecision::storage, 1);
    return run(*GetParam(), DType::f64, cpu, Sink::Mode::store);
  }
  Pass on_cuda(DType d, Sink::Mode mode) const { return on_cuda(*GetParam(), d, mode); }
  static Pass on_cuda(const OpCase& op, DType d, Sink::Mode mode) {
    const OnDevice device;
    Ctx ctx(kCuda, MatmulPrecision::storage, 1);
    Pass p = run(op, d, ctx, mode);
    ctx.synchronize();
    for (const Arrays* list : {&p.outputs, &p.gradients})
      for (const Array& a : *list) a.bytes();
    return p;
  }
};

TEST_P(CudaOp, FollowsDouble) {
  const Pass want = expected();
  for (const DType d : {DType::f32, DType::bf16, DType::f16}) {
    const Pass got = on_cuda(d, Sink::Mode::store);
    const std::string dtype(name_of(d));
    for (std::size_t i = 0; i < want.outputs.size(); ++i)
      expect_close(got.outputs[i].values(), want.outputs[i].values(), tolerance_of(d),
                   dtype + " output " + std::to_string(i));
    for (std::size_t i = 0; i < want.gradients.size(); ++i)
      expect_close(got.gradients[i].values(), want.gradients[i].values(), tolerance_of(d),
                   dtype + " d" + GetParam()->inputs[i].name);
  }
}

TEST_P(CudaOp, SameBitsInEveryOrder) {
  const OpCase op = with_all_digits(*GetParam());
  for (const DType d : {DType::bf16, DType::f32}) {
    const Pass want = on_cuda(op, d, Sink::Mode::store);
    for_each_schedule([&] {
      const Pass got = on_cuda(op, d, Sink::Mode::store);
      for (std::size_t i = 0; i < want.outputs.size(); ++i) EXPECT_EQ(got.outputs[i].bytes(), want.outputs[i].bytes());
      for (std::size_t i = 0; i < want.gradients.size(); ++i)
        EXPECT_EQ(got.gradients[i].bytes(), want.gradients[i].bytes()) << "d" << op.inputs[i].name;
    });
  }
}

TEST_P(CudaOp, SinksAddOrLeaveAlone) {
  const DType d = DType::f32;
  const Pass stored = on_cuda(d, Sink::Mode::store), added = on_cuda(d, Sink::Mode::accumulate);
  const Pass dropped = on_cuda(d, Sink::Mode::discard);
  for (std::size_t i = 0; i < stored.gradients.size(); ++i) {
    const Array before = random(stored.gradients[i].dtype(), GetParam()->inputs[i].shape, 50 + i);
    std::vector<double> want = before.values();
    for (std::int64_t j = 0; j < before.size(); ++j) want[static_cast<std::size_t>(j)] += stored.gradients[i].get(j);
    expect_close(added.gradients[i].values(), want, tolerance_of(d), "accumulated d" + GetParam()->inputs[i].name);
    EXPECT_EQ(dropped.gradients[i].bytes(), before.bytes());
  }
}

/// Plain kernels where tensor cores are not supported, and the largest tiles if shared memory is small.
class CudaOpOnOlderDevice : public CudaOp {};
TEST_P(CudaOpOnOlderDevice, FollowsDouble) {
  const DType d = DType::f16;
  const Pass want = expected();
  with_capability(GetParam()->name == "attention_wide_heads" ? 86 : 75, [&] {
    const Pass got = on_cuda(d, Sink::Mode::store);
    expect_close(got.outputs[0].values(), want.outputs[0].values(), tolerance_of(d), "y");
    for (std::size_t i = 0; i < want.gradients.size(); ++i)
      expect_close(got.gradients[i].values(), want.gradients[i].values(), tolerance_of(d),
                   "d" + GetParam()->inputs[i].name);
  });
}
/// GPUs whose tensor cores have other instructions than those of the harness's default GPU.
class CudaOpWithoutWarpgroups : public CudaOp {};
TEST_P(CudaOpWithoutWarpgroups, FollowsDouble) {
  const Pass want = expected();
  for (const auto& [capability, d] : {std::pair{80, DType::bf16}, {120, DType::f16}})
    with_capability(capability, [&] {
      const Pass got = on_cuda(d, Sink::Mode::store);
      for (std::size_t i = 0; i < want.outputs.size(); ++i)
        expect_close(got.outputs[i].values(), want.outputs[i].values(), tolerance_of(d), "output");
      for (std::size_t i = 0; i < want.gradients.size(); ++i)
        expect_close(got.gradients[i].values(), want.gradients[i].values(), tolerance_of(d),
                     "d" + GetParam()->inputs[i].name);
    });
}
std::vector<const OpCase*> cases_with_warpgroups() {
  std::vector<const OpCase*> cases = op_cases();
  std::erase_if(cases, [](const OpCase* c) { return !c->name.starts_with("attention_warpgroups"); });
  return cases;
}

std::vector<const OpCase*> cases_for_older_devices() {
  std::vector<const OpCase*> cases = op_cases();
  std::erase_if(cases, [](const OpCase* c) {
    return c->name != "attention_wide_heads" && c->name != "attention_window" && c->name != "attention_softcap" &&
           c->name != "attention_tiny_segments";
  });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, CudaOpOnOlderDevice, ::testing::ValuesIn(cases_for_older_devices()),
                         [](const auto& info) { return info.param->name; });
INSTANTIATE_TEST_SUITE_P(All, CudaOpWithoutWarpgroups, ::testing::ValuesIn(cases_with_warpgroups()),
                         [](const auto& info) { return info.param->name; });
INSTANTIATE_TEST_SUITE_P(All, CudaOp, ::testing::ValuesIn(op_cases()),
                         [](const auto& info) { return info.param->name; });

}  // namespace
}  // namespace qtrain::testing
