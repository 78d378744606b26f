// fxc: compiles compute shaders for model 5.1 by the d3dcompiler_47.dll beside it, with the flags that wgpu gives it.
//
//   fxc.exe ENTRY_POINT FILE...
//
// A line for each file: the milliseconds of processor time that it took, and its name. Errors and warnings go to stderr,
// and the exit status is the number of files that were refused.

#define COBJMACROS
#include <windows.h>

#include <d3dcompiler.h>
#include <stdio.h>
#include <stdlib.h>

// Of the processor, because others' work on it doubles what the clock says.
static double milliseconds(void) {
  FILETIME created, ended, kernel, user;
  GetProcessTimes(GetCurrentProcess(), &created, &ended, &kernel, &user);
  return (user.dwHighDateTime * 0x1p32 + user.dwLowDateTime) / 1e4;
}

static int refuses(const char *entry_point, const char *file) {
  wchar_t name[MAX_PATH];
  mbstowcs(name, file, MAX_PATH);

  ID3DBlob *code = NULL, *words = NULL;
  double start = milliseconds();
  HRESULT result =
      D3DCompileFromFile(name, NULL, NULL, entry_point, "cs_5_1", D3DCOMPILE_ENABLE_STRICTNESS, 0, &code, &words);
  printf("%.0f %s\n", milliseconds() - start, file);

  if (words) fputs(ID3D10Blob_GetBufferPointer(words), stderr);
  if (FAILED(result)) fprintf(stderr, "%s: refused, %#lx\n", file, result);
  return FAILED(result);
}

int main(int count, char **words) {
  int refused = 0;
  for (int file = 2; file < count; ++file) refused += refuses(words[1], words[file]);
  return refused;
}
