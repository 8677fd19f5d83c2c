#include "train/step/model_loss.h"

#include "core/os/stop.h"
#include "train/setup/model_setup.h"
#include "train/setup/prepared_data.h"
#include "train/setup/vocabulary.h"

namespace qtrain {

ModelLoss model_loss(Ctx& ctx, const LossRequest& request, Log& log) {
  const Config& c = request.config;
  const Dataset data = DataPreparation(c, ctx.pool(), log).rows(Split::evaluation, request.max_rows);
  require_vocabulary(c, data, Split::evaluation);
  const Loader loader(
      data, {.batch_size = c.training.per_device_eval_batch_size, .sampler = {.sampling = Sampling::sequential}});
  ModelSetup setup = set_up_model(ctx, {.model = c.model.model_name_or_path,
                                        .dtype = c.model.dtype,
                                        .adapter = request.adapter,
                                        .random_init = c.model.random_init,
                                        .quantization = quantization_asked(c.quant),
                                        .router_loss = RouterLossRequest{.is_on = false}});  // target loss only
  advice_on_weights(setup);
  const StopsAtOnce stops;
  Runner runner(*setup.model, {.passes = {{Pass::evaluate, largest_batch(loader, data)}}});
  load_weights(ctx, runner, {.setup = setup, .seed = static_cast<std::uint64_t>(c.training.seed)}, log);
  Solo alone;
  ModelLoss found{.evaluation = Evaluator(ctx.device(), loader, alone).run(ctx, runner, log),
                  .source_rows = data.statistics().source_rows};
  throw_if_stopped();
  return found;
}

}  // namespace qtrain
