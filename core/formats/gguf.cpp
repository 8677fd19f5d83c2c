#include "core/formats/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>

#include "core/utf8.h"

namespace qtrain {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read without swapping bytes");

constexpr GgufBlock kBlocks[] = {
    {GgufType::f32, "F32", 1, 4},       {GgufType::f16, "F16", 1, 2},         {GgufType::q4_0, "Q4_0", 32, 18},
    {GgufType::q4_1, "Q4_1", 32, 20},   {GgufType::q5_0, "Q5_0", 32, 22},     {GgufType::q5_1, "Q5_1", 32, 24},
    {GgufType::q8_0, "Q8_0", 32, 34},   {GgufType::q2_k, "Q2_K", 256, 84},    {GgufType::q3_k, "Q3_K", 256, 110},
    {GgufType::q4_k, "Q4_K", 256, 144}, {GgufType::q5_k, "Q5_K", 256, 176},   {GgufType::q6_k, "Q6_K", 256, 210},
    {GgufType::q8_k, "Q8_K", 256, 292}, {GgufType::iq4_nl, "IQ4_NL", 32, 18}, {GgufType::iq4_xs, "IQ4_XS", 256, 136},
    {GgufType::i8, "I8", 1, 1},         {GgufType::i16, "I16", 1, 2},         {GgufType::i32, "I32", 1, 4},
    {GgufType::i64, "I64", 1, 8},       {GgufType::f64, "F64", 1, 8},         {GgufType::bf16, "BF16", 1, 2},
    {GgufType::mxfp4, "MXFP4", 32, 17}};

using ValueType = GgufValueType;

constexpr int kMaxNesting = 4;
constexpr std::uint64_t kMaxName = 1 << 16;

/// The double whose shortest decimal is that of the f32.
double widen(float x) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, x).ptr;
  double wide = x;
  std::from_chars(text, end, wide);
  return wide;
}

/// Takes values from the front of the file; running out of bytes is an input error.
class Cursor {
 public:
  Cursor(const std::filesystem::path& path, std::span<const std::byte> bytes) : path_(path), bytes_(bytes) {}

  [[noreturn]] void bad(std::string cause) const {
    fail(ErrorKind::input, {.cause = std::move(cause),
                            .place = fmt::format("{} (byte {})", path_.string(), at_),
                            .remedy = "the file is damaged, incomplete or not GGUF: fetch it again"});
  }

  std::uint64_t position() const { return at_; }
  std::uint64_t left() const { return bytes_.size() - at_; }

  template <class T>
  T take(std::string_view what) {
    if (left() < sizeof(T)) bad(fmt::format("ends within {}", what));
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  /// Reads a count of items that take at least `least` bytes each, and checks that the file can hold them, so that it
  /// is safe to allocate for them.
  std::uint64_t count(std::uint64_t least, std::string_view what) {
    const auto n = take<std::uint64_t>(what);
    if (n > left() / least) bad(fmt::format("a count of {} {} is more than the file can hold", n, what));
    return n;
  }

  std::string string(std::string_view what, std::uint64_t max_bytes = std::numeric_limits<std::uint64_t>::max()) {
    const auto length = count(1, what);
    if (length > max_bytes) bad(fmt::format("{} of {} bytes is too long", what, length));
    std::string s(reinterpret_cast<const char*>(bytes_.data()) + at_, static_cast<std::size_t>(length));
    if (!is_valid_utf8(s)) bad(fmt::format("{} is not valid UTF-8", what));
    at_ += length;
    return s;
  }

  Json value(ValueType type, int nesting) {
    switch (type) {
      case ValueType::u8: return number<std::uint8_t>();
      case ValueType::i8: return number<std::int8_t>();
      case ValueType::u16: return number<std::uint16_t>();
      case ValueType::i16: return number<std::int16_t>();
      case ValueType::u32: return number<std::uint32_t>();
      case ValueType::i32: return number<std::int32_t>();
      case ValueType::u64: return number<std::uint64_t>();
      case ValueType::i64: return number<std::int64_t>();
      case ValueType::f32: return widen(take<float>("a value"));
      case ValueType::f64: return take<double>("a value");
      case ValueType::boolean: return take<std::uint8_t>("a value") != 0;
      case ValueType::string: return string("a string");
      case ValueType::array: return array(nesting);
    }
    bad(fmt::format("value type {} is unknown", static_cast<std::uint32_t>(type)));
  }

 private:
  template <class T>
  Json number() {
    const auto v = take<T>("a value");
    if constexpr (std::is_signed_v<T>) {
      return static_cast<std::int64_t>(v);
    } else {
      return static_cast<std::uint64_t>(v);
    }
  }

  Json array(int nesting) {
    if (nesting >= kMaxNesting) bad(fmt::format("arrays are nested deeper than {}", kMaxNesting));
    const auto type = static_cast<ValueType>(take<std::uint32_t>("an array's type"));
    if (type > ValueType::f64) bad(fmt::format("value type {} is unknown", static_cast<std::uint32_t>(type)));
    constexpr std::uint64_t kLeast[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
    const auto n = count(kLeast[static_cast<std::size_t>(type)], "array elements");
    Json::array_t items;
    items.reserve(static_cast<std::size_t>(n));
    for (std::uint64_t i = 0; i < n; ++i) items.push_back(value(type, nesting + 1));
    return items;
  }

  const std::filesystem::path& path_;
  std::span<const std::byte> bytes_;
  std::uint64_t at_ = 0;
};

std::uint32_t read_preamble(Cursor& in) {
  if (in.take<std::uint32_t>("the magic number") != kGgufMagic) in.bad("does not begin with GGUF");
  const auto version = in.take<std::uint32_t>("the version");
  if (version == 0x02000000u || version == 0x03000000u) in.bad("is a big-endian GGUF file, which is not supported");
  if (version != 2 && version != 3) in.bad(fmt::format("has GGUF version {}; 2 and 3 are supported", version));
  return version;
}

/// A tensor as the header describes it; `data` is set after the whole header is read.
struct TensorInfo {
  std::string name;
  GgufTensor tensor;
  std::uint64_t offset = 0, bytes = 0;
};

TensorInfo read_info(Cursor& in) {
  TensorInfo info{.name = in.string("a tensor's name", kMaxName)};
  const auto rank = in.take<std::uint32_t>("a tensor's rank");
  if (rank < 1 || rank > 4)
    in.bad(fmt::format("tensor \"{}\" has {} dimensions; 1 to 4 are supported", info.name, rank));
  std::uint64_t numel = 1;
  for (std::uint32_t i = 0; i < rank; ++i) {
    const auto extent = in.take<std::uint64_t>("a tensor's shape");
    if (extent > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) ||
        __builtin_mul_overflow(numel, extent, &numel))
      in.bad(fmt::format("the shape of tensor \"{}\" overflows", info.name));
    info.tensor.shape.insert(info.tensor.shape.begin(), static_cast<std::int64_t>(extent));
  }
  info.tensor.type = static_cast<GgufType>(in.take<std::uint32_t>("a tensor's type"));
  info.offset = in.take<std::uint64_t>("a tensor's offset");
  const auto* block = gguf_block(info.tensor.type);
  if (block == nullptr)
    in.bad(fmt::format("tensor \"{}\" has {}, which is unknown", info.name, name_of(info.tensor.type)));
  if (static_cast<std::uint64_t>(info.tensor.row()) % block->values != 0)
    in.bad(fmt::format("rows of {} values of tensor \"{}\" are not whole blocks of {}", info.tensor.row(), info.name,
                       block->name));
  if (__builtin_mul_overflow(numel / block->values, block->bytes, &info.bytes))
    in.bad(fmt::format("the shape of tensor \"{}\" overflows", info.name));
  return info;
}

void check_overlap(const Cursor& in, std::vector<TensorInfo>& infos) {
  std::sort(infos.begin(), infos.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  for (std::size_t i = 1; i < infos.size(); ++i)
    if (infos[i].offset < infos[i - 1].offset + infos[i - 1].bytes)
      in.bad(fmt::format("tensors \"{}\" and \"{}\" overlap", infos[i - 1].name, infos[i].name));
}

[[noreturn]] void fail_value(const GgufFile& file, const std::string& key, std::string_view wanted) {
  fail(ErrorKind::input,
       {.cause = fmt::format("metadata \"{}\" is not {}", key, wanted), .place = file.path().string()});
}

}  // namespace

const GgufBlock* gguf_block(GgufType type) {
  const auto* found = std::find_if(std::begin(kBlocks), std::end(kBlocks), [&](auto& b) { return b.type == type; });
  return found == std::end(kBlocks) ? nullptr : found;
}

std::string name_of(GgufType type) {
  const auto* block = gguf_block(type);
  return block ? std::string(block->name) : fmt::format("type {}", static_cast<std::uint32_t>(type));
}

std::int64_t GgufTensor::numel() const {
  std::int64_t n = 1;
  for (const auto extent : shape) n *= extent;
  return n;
}

GgufFile::GgufFile(const std::filesystem::path& file) : path_(file), file_(file) {
  Cursor in(path_, file_.bytes());
  version_ = read_preamble(in);
  const auto tensor_count = in.take<std::uint64_t>("the tensor count");
  const auto value_count = in.count(13, "metadata values");  // key length, value type and one byte
  for (std::uint64_t i = 0; i < value_count; ++i) {
    auto key = in.string("a metadata key", kMaxName);
    const auto type = static_cast<ValueType>(in.take<std::uint32_t>("a value's type"));
    if (!values_.emplace(key, in.value(type, 0)).second) in.bad(fmt::format("metadata \"{}\" is given twice", key));
  }
  if (tensor_count > in.left() / 32)  // name length, rank, one extent, type, offset
    in.bad(fmt::format("a count of {} tensors is more than the file can hold", tensor_count));
  std::vector<TensorInfo> infos;
  for (std::uint64_t i = 0; i < tensor_count; ++i) infos.push_back(read_info(in));

  const auto alignment = integer_or("general.alignment", kGgufAlignment);
  if (alignment < 1 || alignment > (1 << 20) || !std::has_single_bit(static_cast<std::uint64_t>(alignment)))
    in.bad(fmt::format("general.alignment {} is not a valid power of two", alignment));
  const auto unit = static_cast<std::uint64_t>(alignment);
  const auto begin = std::min((in.position() + unit - 1) / unit * unit, file_.bytes().size());
  const auto data = file_.bytes().subspan(begin);
  for (auto& info : infos) {
    if (info.offset % unit != 0) in.bad(fmt::format("tensor \"{}\" is not aligned", info.name));
    if (info.offset > data.size() || info.bytes > data.size() - info.offset)
      in.bad(fmt::format("tensor \"{}\" ends beyond the end of the file", info.name));
    info.tensor.data = data.subspan(info.offset, info.bytes);
  }
  check_overlap(in, infos);
  for (auto& info : infos)
    if (!tensors_.emplace(info.name, std::move(info.tensor)).second)
      in.bad(fmt::format("tensor \"{}\" appears twice", info.name));
}

const Json* GgufFile::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

const Json& GgufFile::value(const std::string& key) const {
  if (const auto* v = find(key)) return *v;
  fail(ErrorKind::input, {.cause = fmt::format("has no metadata \"{}\"", key), .place = path_.string()});
}

const std::string& GgufFile::text(const std::string& key) const {
  const auto& v = value(key);
  if (!v.is_string()) fail_value(*this, key, "a string");
  return v.get_ref<const std::string&>();
}

std::int64_t GgufFile::integer(const std::string& key) const {
  const auto& v = value(key);
  if (!v.is_number_integer() || v.get<std::int64_t>() < 0) fail_value(*this, key, "a non-negative integer");
  return v.get<std::int64_t>();
}

std::int64_t GgufFile::integer_or(const std::string& key, std::int64_t fallback) const {
  return find(key) ? integer(key) : fallback;
}

double GgufFile::number_or(const std::string& key, double fallback) const {
  const auto* v = find(key);
  if (v == nullptr) return fallback;
  if (!v->is_number()) fail_value(*this, key, "a number");
  return v->get<double>();
}

const Json::array_t& GgufFile::array(const std::string& key) const {
  const auto& v = value(key);
  if (!v.is_array()) fail_value(*this, key, "an array");
  return v.get_ref<const Json::array_t&>();
}

const GgufTensor& GgufFile::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return found->second;
  fail(ErrorKind::input, {.cause = fmt::format("has no tensor \"{}\"", name), .place = path_.string()});
}

}  // namespace qtrain
