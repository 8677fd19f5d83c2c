// Float32 weights that GEMMs read through bfloat16 copies behave like weights rounded to bfloat16.
#include "model/operand_copies.h"

#include "tests/model/support.h"

namespace qtrain::testing {
namespace {

class OperandCopiesOf : public ::testing::TestWithParam<const char*> {
 protected:
  TransformerOptions options() const {
    const bool adapter = GetParam() == std::string("adapter");
    const Json qwen2{{"model_type", "qwen2"}, {"tie_word_embeddings", true}};
    TransformerOptions o{.config = parse_model_config(small_config(qwen2), "qwen2"),
                         .activation_dtype = DType::bf16,
                         .base = adapter ? Update::frozen : Update::trained};
    if (adapter) o.lora = LoraConfig{.r = 3, .alpha = 5, .dropout = 0.25, .targets = {"all-linear", "embed_tokens"}};
    return o;
  }
  /// Normal values by `seed`; norms are ones.
  void draw(Transformer& model, std::uint64_t seed) {
    for (ParamStore* store : {&model.weights(), &model.adapter()})
      for (Param& p : store->all())
        if (p.spec.init.kind != Init::Kind::ones) p.spec.init = {Init::Kind::normal, 0.3};
    model.weights().initialize(ctx_, seed);
    model.adapter().initialize(ctx_, seed + 1);
  }
  std::unique_ptr<PlannedModel> with_copies() { return std::make_unique<PlannedModel>(ctx_, options(), kept()); }
  /// A step of a model whose weights have only bfloat16 precision.
  Outcome rounded_step(std::uint64_t seed) {
    const auto model = planned_model(ctx_, options(), batch_.size());
    draw(*model, seed);
    for (const ParamStore* store : {&model->weights(), &model->adapter()})
      for (const Param& p : store->all())
        for (float& v : p.value.span<float>()) v = static_cast<float>(Bf16(v));
    return step(*model);
  }
  Outcome step(PlannedModel& model) { return train_step(ctx_, model, {batch_}, {.dropout_seed = 9}); }

  /// The memory that a plan with copies needs.
  ExecutionMemory measured(const TransformerOptions& o) { return Runner::measure(Transformer(ctx_, o), kept()); }

  Execution kept() const {
    return {.choice = {.operand_copies = KeepCopies::yes}, .passes = {{Pass::train, batch_.size()}}};
  }

  Ctx ctx_{{}, MatmulPrecision::bf16, 1};
  Ragged batch_{small_rows()};
};

TEST_P(OperandCopiesOf, AreTheWeightsRounded) {
  const auto model = with_copies();
  draw(*model, 5);
  model->runner.copies().fill_operands(ctx_);
  EXPECT_TRUE(step(*model) == rounded_step(5));
}

TEST_P(OperandCopiesOf, FollowTheTrainedWeights) {
  const auto model = with_copies();
  draw(*model, 5);
  model->runner.copies().fill_operands(ctx_);
  for (const Param* p : model->trained())
    for (float& v : p->value.span<float>()) v *= 1.5F;
  const Outcome changed = step(*model);
  const OperandCopies& copies = model->runner.copies().operands();
  copies.convert(ctx_, copies.trained());
  const Outcome refreshed = step(*model);
  EXPECT_FALSE(refreshed == changed);
  model->runner.copies().fill_operands(ctx_);
  EXPECT_TRUE(step(*model) == refreshed) << "weights that do not train have not changed";
}

TEST_P(OperandCopiesOf, TakeTheBytesThatWereNamed) {
  const auto model = with_copies();
  const std::size_t kept = model->runner.copies().operands().bytes();
  EXPECT_GT(kept, 0u);
  EXPECT_EQ(kept, measured(options()).operand_copies);
  TransformerOptions untied = options();
  untied.config.tie_word_embeddings = false;
  EXPECT_EQ(measured(untied).operand_copies, kept) << "GEMMs read the head, but nothing reads the embedding";
  TransformerOptions wide = options();
  wide.activation_dtype = DType::f32;
  EXPECT_EQ(measured(wide).operand_copies, 0u) << "GEMMs in float32 read the weights themselves";
}

TEST_P(OperandCopiesOf, LeaveNothingToConvert) {
  const Execution without{.passes = kept().passes};
  EXPECT_GT(Runner::measure(Transformer(ctx_, options()), without).gemm.total(), 0u);
  EXPECT_EQ(measured(options()).gemm.total(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Stores, OperandCopiesOf, ::testing::Values("base", "adapter"),
                         [](const auto& info) { return std::string(info.param); });

// An embedding that is trained along with an adapter is the largest float32 weight, and no GEMM reads it.
TEST(GemmMemory, HoldsNoTableThatIsOnlyLookedUp) {
  TransformerOptions o{.config = parse_model_config(small_config({{"tie_word_embeddings", false}}), "llama"),
                       .weight_dtype = DType::bf16,
                       .activation_dtype = DType::bf16,
                       .base = Update::frozen,
                       .lora = LoraConfig{.r = 2, .targets = {"q_proj"}, .modules_to_save = {"embed_tokens"}}};
  const auto converted = [&] {
    const BatchSize size{.tokens = 8, .positions = 8, .targets = 8};
    return Runner::measure(Transformer(Device{}, o), {.passes = {{Pass::train, size}}}).gemm;
  };
  const auto stack = static_cast<std::size_t>(2 * o.config.hidden_size) * size_of(DType::bf16);
  EXPECT_GE(converted().converted_b, stack);
  EXPECT_LT(converted().converted_b, static_cast<std::size_t>(o.config.vocab_size * o.config.hidden_size));
  o.lora->modules_to_save = {"lm_head"};
  EXPECT_GE(converted().converted_b,
            static_cast<std::size_t>(o.config.vocab_size * o.config.hidden_size) * size_of(DType::bf16));
}

}  // namespace
}  // namespace qtrain::testing
