#include "text/template/from_json.h"

#include <utility>

namespace qtrain {

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

}  // namespace qtrain
