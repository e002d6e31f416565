// RUN: not amk-opt %s -p 'place-kv-append{at=epilogue}' 2>&1 | filecheck %s --check-prefix=EPILOGUE
// RUN: not amk-opt %s -p 'place-kv-append{at=attention}' 2>&1 | filecheck %s --check-prefix=ATTENTION
// RUN: amk-opt %s -p 'place-kv-append' --pass-statistics 2>&1 | filecheck %s --check-prefix=AUTO

// EPILOGUE: place-kv-append: at=epilogue at kv.append: no stage computes the rows; use at=auto
// ATTENTION: place-kv-append: at=attention at kv.append: no attention stage reads the cache; use at=auto
// AUTO: place-kv-append: 1 stage
!cache = !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
func.func @step(%x: tensor<1x2x1x4xf32>, %pos: index, %k: !cache) -> !cache {
  %n = kv.append %k, %x : tensor<1x2x1x4xf32> -> !cache
  func.return %n : !cache
}
