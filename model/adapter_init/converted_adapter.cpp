#include "model/adapter_init/converted_adapter.h"

#include <cstring>
#include <memory>

#include "kernels/elementwise.h"
#include "model/hf_folder.h"

namespace qtrain {
namespace {

using Append = std::function<void(std::span<const std::byte>)>;

// A has the initial factor below it, B beside it.
bool is_below(const Param& p) {
  return p.spec.name.ends_with(".lora_A.weight");
}

Shape both_shape(const Param& p) {
  const Shape& s = p.spec.shape;
  return is_below(p) ? Shape{2 * s[0], s[1]} : Shape{s[0], 2 * s[1]};
}

// [A; A0] or [B, -B0].
std::vector<float> beside(const Param& p, std::span<const float> trained, std::span<const float> initial) {
  std::vector<float> both;
  both.reserve(2 * trained.size());
  const bool below = is_below(p);
  const std::size_t row = below ? trained.size() : static_cast<std::size_t>(p.spec.shape[1]);
  for (std::size_t begin = 0; begin < trained.size(); begin += row) {
    both.insert(both.end(), trained.begin() + static_cast<std::ptrdiff_t>(begin),
                trained.begin() + static_cast<std::ptrdiff_t>(begin + row));
    for (std::size_t i = begin; i < begin + row; ++i) both.push_back(below ? initial[i] : -initial[i]);
  }
  return both;
}

// The element of [A; A0] or [B, -B0] that element i of a trained factor is, and of its initial one if `second`.
std::size_t place_of(const Param& p, std::size_t i, std::size_t second) {
  const auto all = static_cast<std::size_t>(p.spec.shape.numel());
  const std::size_t row = is_below(p) ? all : static_cast<std::size_t>(p.spec.shape[1]);
  return (2 * (i / row) + second) * row + i % row;
}

// Only the one owner of the parameter passes it on.
TensorSource with_initial(TensorSource trained, const Param& p, const Param& initial) {
  check(trained.dtype == DType::f32, "adapters that change the base weights are in f32");
  TensorSource both = trained;
  both.shape = both_shape(p);
  if (both.part) both.part = TensorSource::Part{.begin = 2 * both.part->begin, .count = 2 * both.part->count};
  both.produce = [trained = std::move(trained), &p, &initial](const Append& append) {
    std::vector<float> values;
    trained.produce([&](std::span<const std::byte> bytes) {
      const std::size_t before = values.size();
      values.resize(before + bytes.size() / sizeof(float));
      std::memcpy(values.data() + before, bytes.data(), bytes.size());
    });
    if (values.empty()) return;
    const std::span<const float> started(initial.value.as<float>(), values.size());
    const std::vector<float> all = beside(p, values, started);
    append(std::as_bytes(std::span(all)));
  };
  return both;
}

}  // namespace

std::vector<TensorSource> adapter_sources(Ctx& ctx, Transformer& model) {
  const ParamStore &adapter = model.adapter(), &initial = model.params().adapter().initial();
  std::vector<TensorSource> sources = tensors_of(ctx, adapter);
  for (TensorSource& source : sources) {
    const Param* first = initial.find(source.name);
    if (first) source = with_initial(std::move(source), *adapter.find(source.name), *first);
  }
  return sources;
}

std::vector<std::string> load_adapter_file(Ctx& ctx, Transformer& model, const std::filesystem::path& path) {
  ParamStore& initial = model.params().adapter().initial();
  if (initial.all().empty()) return load_parameters(ctx, model.adapter(), path);
  ParamStore file("adapter file");
  for (const Param& p : model.adapter().all()) {
    ParamSpec spec = p.spec;
    if (initial.find(spec.name)) spec.shape = both_shape(p);
    spec.update = Update::frozen;
    spec.continues = false;
    file.declare(std::move(spec));
  }
  file.allocate();
  HostContext host(ctx);
  std::vector<std::string> unused = load_parameters(host.get(), file, path);
  for (const Param& p : model.adapter().all()) {
    const Param& read = *file.find(p.spec.name);
    Param* first = initial.find(p.spec.name);
    dispatch_float(p.spec.dtype, [&]<class T>() {
      const T* values = read.value.as<T>();
      write_values(ctx, p, [&](std::int64_t begin, Tensor chunk) {
        for (std::int64_t i = 0; i < chunk.numel(); ++i)
          chunk.as<T>()[i] =
              values[first ? place_of(p, static_cast<std::size_t>(begin + i), 0) : static_cast<std::size_t>(begin + i)];
      });
      for (std::int64_t i = 0; first && i < p.spec.shape.numel(); ++i) {
        const auto value = static_cast<float>(values[place_of(p, static_cast<std::size_t>(i), 1)]);
        first->value.as<float>()[i] = is_below(p) ? value : -value;
      }
    });
  }
  return unused;
}

}  // namespace qtrain
