// Algorithms of products decide the last bits of a run, so a run that goes on takes those of its checkpoint.
#include "tests/e2e/cuda_run.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class CudaProducts : public CudaRun {
 protected:
  /// Goes on behind step 1, with the choices of that checkpoint changed.
  Outcome resumed(const std::function<void(Json& choices)>& change) const {
    const Json c = config({{"save_strategy", "steps"}, {"save_steps", 1}});
    train_ok(folder_.path(), c);
    fs::remove_all(second_);
    Json choices = read_json(first_ / kFile);
    change(choices);
    write_file(first_ / kFile, dump_json(choices));
    reseal(first_, kFile);
    return train_ok(folder_.path(), c);
  }

  static constexpr const char *kFile = "product_choices.json", *kProduct = "m512 n8 k8 a product of this test";
  const Json algorithm_{1, 2, 3, 4, 5, 6, 7, 8};
  fs::path first_ = folder_ / "out/checkpoint-1", second_ = folder_ / "out/checkpoint-2";
};

TEST_F(CudaProducts, GoOnAsTheCheckpointSays) {
  const Outcome outcome = resumed([&](Json& choices) { choices["choices"][kProduct] = algorithm_; });
  EXPECT_THAT(outcome.err, HasSubstr("at step 1 of 2"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("another GPU")));
  EXPECT_EQ(read_json(second_ / kFile).at("choices").value(kProduct, Json()), algorithm_);
  EXPECT_TRUE(read_json(second_ / "manifest.json").at("files").contains(kFile));
}

TEST_F(CudaProducts, OfAnotherGpuAreToldAndNotTaken) {
  const Outcome outcome = resumed([&](Json& choices) {
    choices["choices"][kProduct] = algorithm_;
    choices["made_by"] = "another";
  });
  EXPECT_THAT(outcome.err, HasSubstr("by another GPU or library"));
  EXPECT_FALSE(read_json(second_ / kFile).at("choices").contains(kProduct));
}

}  // namespace
}  // namespace qtrain::e2e
