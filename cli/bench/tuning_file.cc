#include "bench/tuning_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/tuning_text.h"

namespace ranvier::bench {

TuningFile::TuningFile(const std::string& path) : file_(path, "--tune") {
  if (path == "-" || !std::filesystem::exists(path)) return;
  TuningTable::read(path);  // refuses what is no table
  std::ifstream file(path, std::ios::binary);
  before_.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

void TuningFile::replace(const std::vector<TuningRow>& rows) const { file_.write(engine::with_rows(before_, rows)); }

}  // namespace ranvier::bench
