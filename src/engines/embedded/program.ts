/** Finds the entry file of a program of `engines/`, in a checkout and in a package. */

/** `llama/main` -> `engines/llama/main.ts` of a checkout, `dist/programs/llama/main.js` of a package. */
export function programUrl(name: string): URL {
  const isSource = import.meta.url.endsWith('.ts');
  const path = isSource ? `../../../engines/${name}.ts` : `../../programs/${name}.js`;
  return new URL(path, import.meta.url);
}
