// A C++ program that wraps the C interface as such programs do: owners that release what they hold, exceptions for errors. It holds for
// LevelDB and for tamis alike. Takes a directory to work in.

#ifdef TAMIS_HEADER
#include <tamis/leveldb.h>
#else
#include <leveldb/c.h>
#endif

#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

void require(bool holds, const char* what) {
  if (!holds) {
    std::cerr << "not true: " << what << std::endl;
    std::abort();
  }
}

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Passes an error out of a call as an exception.
class Errors {
 public:
  Errors() = default;
  Errors(const Errors&) = delete;
  Errors& operator=(const Errors&) = delete;
  ~Errors() { leveldb_free(text_); }
  operator char**() { return &text_; }
  void raise() const {
    if (text_ != nullptr) throw Error(text_);
  }

 private:
  char* text_ = nullptr;
};

template <typename T, void (*destroy)(T*)>
struct Destroy {
  void operator()(T* object) const { destroy(object); }
};
template <typename T, void (*destroy)(T*)>
using Owned = std::unique_ptr<T, Destroy<T, destroy>>;

using Options = Owned<leveldb_options_t, leveldb_options_destroy>;
using ReadOptions = Owned<leveldb_readoptions_t, leveldb_readoptions_destroy>;
using WriteOptions = Owned<leveldb_writeoptions_t, leveldb_writeoptions_destroy>;
using Cache = Owned<leveldb_cache_t, leveldb_cache_destroy>;
using Policy = Owned<leveldb_filterpolicy_t, leveldb_filterpolicy_destroy>;
using Cursor = Owned<leveldb_iterator_t, leveldb_iter_destroy>;
using Batch = Owned<leveldb_writebatch_t, leveldb_writebatch_destroy>;
using Handle = Owned<leveldb_t, leveldb_close>;

class Store {
 public:
  Store(const std::string& path, bool create) : cache_(leveldb_cache_create_lru(1 << 20)) {
    policy_.reset(leveldb_filterpolicy_create_bloom(12));
    options_.reset(leveldb_options_create());
    leveldb_options_set_create_if_missing(options_.get(), create);
    leveldb_options_set_cache(options_.get(), cache_.get());
    leveldb_options_set_filter_policy(options_.get(), policy_.get());
    leveldb_options_set_write_buffer_size(options_.get(), 1 << 20);
    leveldb_options_set_compression(options_.get(), leveldb_snappy_compression);
    Errors errors;
    db_.reset(leveldb_open(options_.get(), path.c_str(), errors));
    errors.raise();
    reads_.reset(leveldb_readoptions_create());
    writes_.reset(leveldb_writeoptions_create());
  }

  void put(std::string_view key, std::string_view value) {
    Errors errors;
    leveldb_put(db_.get(), writes_.get(), key.data(), key.size(), value.data(), value.size(), errors);
    errors.raise();
  }

  void write(const std::map<std::string, std::optional<std::string>>& changes) {
    Batch batch(leveldb_writebatch_create());
    for (const auto& [key, value] : changes) {
      if (value) {
        leveldb_writebatch_put(batch.get(), key.data(), key.size(), value->data(), value->size());
      } else {
        leveldb_writebatch_delete(batch.get(), key.data(), key.size());
      }
    }
    Errors errors;
    leveldb_write(db_.get(), writes_.get(), batch.get(), errors);
    errors.raise();
  }

  std::optional<std::string> get(std::string_view key) const {
    Errors errors;
    size_t size = 0;
    char* data = leveldb_get(db_.get(), reads_.get(), key.data(), key.size(), &size, errors);
    errors.raise();
    if (data == nullptr) return std::nullopt;
    std::string value(data, size);
    leveldb_free(data);
    return value;
  }

  std::vector<std::pair<std::string, std::string>> prefix(std::string_view prefix, bool backwards = false) const {
    Cursor cursor(leveldb_create_iterator(db_.get(), reads_.get()));
    std::vector<std::pair<std::string, std::string>> found;
    auto part = [&](const char* (*of)(const leveldb_iterator_t*, size_t*)) {
      size_t size = 0;
      const char* data = of(cursor.get(), &size);
      return std::string(data, size);
    };
    auto matches = [&] {
      return leveldb_iter_valid(cursor.get()) && part(leveldb_iter_key).compare(0, prefix.size(), prefix) == 0;
    };
    if (backwards) {
      std::string end(prefix);
      end.back()++;
      leveldb_iter_seek(cursor.get(), end.data(), end.size());
      if (leveldb_iter_valid(cursor.get())) {
        leveldb_iter_prev(cursor.get());
      } else {
        leveldb_iter_seek_to_last(cursor.get());
      }
    } else {
      leveldb_iter_seek(cursor.get(), prefix.data(), prefix.size());
    }
    while (matches()) {
      found.emplace_back(part(leveldb_iter_key), part(leveldb_iter_value));
      backwards ? leveldb_iter_prev(cursor.get()) : leveldb_iter_next(cursor.get());
    }
    Errors errors;
    leveldb_iter_get_error(cursor.get(), errors);
    errors.raise();
    return found;
  }

 private:
  Cache cache_;
  Policy policy_;
  Options options_;
  Handle db_;
  ReadOptions reads_;
  WriteOptions writes_;
};

}  // namespace

int main(int argc, char** argv) {
  require(argc == 2, "one argument");
  const std::string path = std::string(argv[1]) + "/wrapped";
  try {
    Store missing(path, false);
    require(false, "a database that is not there is not opened");
  } catch (const Error& error) {
    require(std::string_view(error.what()).find("Invalid argument") == 0, "the kind of the error");
  }
  {
    Store store(path, true);
    store.put("b/1", "one");
    store.write({{"a/1", "x"}, {"b/2", std::string("zero\0inside", 11)}, {"b/3", "three"}, {"c/1", "y"}});
    store.write({{"b/3", std::nullopt}});
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; thread++) {
      threads.emplace_back([&store, thread] {
        for (int i = 0; i < 250; i++) store.put("t/" + std::to_string(1000 * (thread + 1) + i), std::to_string(i));
      });
    }
    for (auto& thread : threads) thread.join();
  }
  Store store(path, false);
  require(store.get("b/2") == std::string("zero\0inside", 11), "a value with a zero byte");
  require(!store.get("b/3"), "a deleted key");
  const auto found = store.prefix("b/");
  require(found.size() == 2 && found[0].first == "b/1" && found[1].first == "b/2", "a prefix");
  const auto back = store.prefix("b/", true);
  require(back.size() == 2 && back[0].first == "b/2" && back[1].first == "b/1", "a prefix, backwards");
  require(store.prefix("t/").size() == 1000, "what the threads wrote");
  require(store.prefix("t/", true).front().first == "t/4249", "the last key");
  std::cout << "wrapper: ok" << std::endl;
}
