// GEMM algorithms decide the last bits of a run, so a resumed run uses those of its checkpoint.
#include "tests/e2e/cuda_run.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class CudaGemmChoices : public CudaRun {
 protected:
  enum class FileName : std::uint8_t { current, former };

  /// Resumes after step 1, with changed choices in that checkpoint.
  Outcome resumed(const std::function<void(Json& choices)>& change, FileName name = FileName::current) const {
    const Json c = config({{"save_strategy", "steps"}, {"save_steps", 1}});
    train_ok(folder_.path(), c);
    fs::remove_all(second_);
    Json choices = read_json(first_ / kFile);
    change(choices);
    write_file(first_ / kFile, dump_json(choices));
    reseal(first_, kFile);
    if (name == FileName::former) name_as_before();
    return train_ok(folder_.path(), c);
  }

  /// Renames the file as it was called in checkpoints before version 0.1.0.
  void name_as_before() const {
    constexpr const char* kFormer = "product_choices.json";
    fs::rename(first_ / kFile, first_ / kFormer);
    Json manifest = read_json(first_ / "manifest.json");
    manifest["files"].erase(kFile);
    write_file(first_ / "manifest.json", dump_json(manifest));
    reseal(first_, kFormer);
  }

  static constexpr const char *kFile = "gemm_choices.json", *kGemm = "m512 n8 k8 a GEMM of this test";
  const Json algorithm_{1, 2, 3, 4, 5, 6, 7, 8};
  fs::path first_ = folder_ / "out/checkpoint-1", second_ = folder_ / "out/checkpoint-2";
};

TEST_F(CudaGemmChoices, GoOnAsTheCheckpointSays) {
  const Outcome outcome = resumed([&](Json& choices) { choices["choices"][kGemm] = algorithm_; });
  EXPECT_THAT(outcome.err, HasSubstr("at step 1 of 2"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("different GPU")));
  EXPECT_EQ(read_json(second_ / kFile).at("choices").value(kGemm, Json()), algorithm_);
  EXPECT_TRUE(read_json(second_ / "manifest.json").at("files").contains(kFile));
}

TEST_F(CudaGemmChoices, AreReadUnderTheirFormerName) {
  resumed([&](Json& choices) { choices["choices"][kGemm] = algorithm_; }, FileName::former);
  EXPECT_EQ(read_json(second_ / kFile).at("choices").value(kGemm, Json()), algorithm_);
}

TEST_F(CudaGemmChoices, OfAnotherGpuAreToldAndNotTaken) {
  const Outcome outcome = resumed([&](Json& choices) {
    choices["choices"][kGemm] = algorithm_;
    choices["made_by"] = "another";
  });
  EXPECT_THAT(outcome.err, HasSubstr("with a different GPU, library or rules"));
  EXPECT_FALSE(read_json(second_ / kFile).at("choices").contains(kGemm));
}

}  // namespace
}  // namespace qtrain::e2e
