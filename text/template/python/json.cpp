#include "text/template/python/json.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "text/template/python/characters.h"
#include "text/template/python/operators.h"
#include "text/template/python/repr.h"

namespace qtrain {
namespace {

void append_unit(std::string& out, char32_t unit) {
  constexpr char hex[] = "0123456789abcdef";
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += hex[(unit >> shift) & 15];
}

void append_json_char(std::string& out, char32_t c, bool ensure_ascii) {
  switch (c) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    case '\f': out += "\\f"; return;
    case '\b': out += "\\b"; return;
    default: break;
  }
  if (c >= 0x20 && (c < 0x7f || !ensure_ascii)) return append_code_point(out, c);
  if (c < 0x10000) return append_unit(out, c);
  append_unit(out, 0xd800 + ((c - 0x10000) >> 10));
  append_unit(out, 0xdc00 + ((c - 0x10000) & 0x3ff));
}

class Dumper {
 public:
  Dumper(PyWork& work, const DumpOptions& options) : work_(work), options_(options) {}

  void dump(const PyValue& value) {
    PyWork::Level level(work_);
    switch (value.kind()) {
      case PyKind::none: return put("null");
      case PyKind::boolean: return put(value.boolean() ? "true" : "false");
      case PyKind::integer: return put(py_int_text(*value.integer()));
      case PyKind::real: return put(real(value.real()));
      case PyKind::string: return put(string(value.text()));
      case PyKind::list:
      case PyKind::tuple: return dump_list(value.items());
      case PyKind::dict: return dump_dict(value.dict());
      default: py_fail("Object of type " + py_type_name(value) + " is not JSON serializable");
    }
  }
  std::string take() { return std::move(out_); }

 private:
  void put(std::string_view piece) {
    work_.require_fits(out_.size() + piece.size());
    work_.make(piece.size());
    out_ += piece;
  }

  static std::string real(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
    return py_real_text(d);
  }

  std::string string(std::string_view text) const {
    std::string out = "\"";
    for (std::size_t pos = 0; pos < text.size();)
      append_json_char(out, next_code_point(text, pos), options_.ensure_ascii);
    return out += '"';
  }

  void new_line() {
    if (!options_.indent) return;
    put("\n");
    for (int i = 0; i < levels_; ++i) put(*options_.indent);
  }

  void dump_list(const PyItems& items) {
    if (items.empty()) return put("[]");
    put("[");
    ++levels_;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) put(options_.item_separator);
      new_line();
      dump(items[i]);
    }
    --levels_;
    new_line();
    put("]");
  }

  std::string key(const PyValue& k) {
    switch (k.kind()) {
      case PyKind::string: return string(k.text());
      case PyKind::none: return "\"null\"";
      case PyKind::boolean: return k.boolean() ? "\"true\"" : "\"false\"";
      case PyKind::integer: return '"' + py_int_text(*k.integer()) + '"';
      case PyKind::real: return '"' + real(k.real()) + '"';
      default: py_fail("keys must be str, int, float, bool or None, not " + py_type_name(k));
    }
  }

  void dump_dict(const PyDict& dict) {
    if (dict.entries.empty()) return put("{}");
    std::vector<const std::pair<PyValue, PyValue>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (options_.sort_keys)
      std::stable_sort(entries.begin(), entries.end(),
                       [&](const auto* a, const auto* b) { return py_less(work_, a->first, b->first); });
    put("{");
    ++levels_;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) put(options_.item_separator);
      new_line();
      put(key(entries[i]->first));
      put(options_.key_separator);
      dump(entries[i]->second);
    }
    --levels_;
    new_line();
    put("}");
  }

  PyWork& work_;
  const DumpOptions& options_;
  std::string out_;
  int levels_ = 0;
};

}  // namespace

PyValue py_from_json(const Json& json) {
  switch (json.type()) {
    case Json::value_t::boolean: return json.get<bool>();
    case Json::value_t::number_integer: return static_cast<PyInt>(json.get<std::int64_t>());
    case Json::value_t::number_unsigned: return static_cast<PyInt>(json.get<std::uint64_t>());
    case Json::value_t::number_float: return json.get<double>();
    case Json::value_t::string: return json.get_ref<const std::string&>();
    case Json::value_t::array: {
      PyItems items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(py_from_json(item));
      return PyValue::list(std::move(items));
    }
    case Json::value_t::object: {
      PyDict dict;
      PyWork unlimited;
      for (const auto& [key, item] : json.items()) dict.set(unlimited, key, py_from_json(item));
      return dict;
    }
    default: return {};
  }
}

std::string py_json_dumps(PyWork& work, const PyValue& value, const DumpOptions& options) {
  Dumper dumper(work, options);
  dumper.dump(value);
  return dumper.take();
}

}  // namespace qtrain
