#include "config/training_sources.h"

namespace qtrain {

ColumnMap columns_of(const DataSection& d) {
  ColumnMap map = read_column_map({{"column_mapping", d.column_mapping},
                                   {"message_property_mappings", d.message_property_mappings},
                                   {"role_mapping", d.role_mapping}});
  require_known_columns(map, d.dataset_text_field);
  return map;
}

std::vector<SplitSlice> named_splits(const char* key, const std::optional<std::string>& text) {
  try {
    return read_split(text.value_or(""));
  } catch (const Error& e) {  // adds the key
    fail(ErrorKind::usage, {.cause = e.text().cause, .place = key, .remedy = e.text().remedy});
  }
}

std::vector<DataSource> training_sources(const DataSection& data) {
  if (data.dataset_mixture.empty())
    return {{.files = data.dataset_name,
             .splits = named_splits("dataset_train_split", data.dataset_train_split),
             .columns = columns_of(data),
             .config = data.dataset_config}};
  const ColumnMap columns = columns_of(data);
  std::vector<DataSource> sources;
  for (const Json& entry : data.dataset_mixture) {
    sources.push_back(read_data_source(entry, columns));
    require_known_columns(sources.back().columns, data.dataset_text_field);
  }
  return sources;
}

}  // namespace qtrain
