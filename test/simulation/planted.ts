/**
 * Bugs that can be planted in the product, to show that the simulation finds them. Each replaces texts of one
 * source file while it is loaded; nothing is written. `planted-bugs.txt` has a line with the name and the file
 * of each bug, and below it the texts with their replacements. A text that is not exactly once in its file is an
 * error, so that a bug is always really there.
 */
import { readFileSync } from 'node:fs';
import { registerHooks } from 'node:module';

interface PlantedBug {
  /** The URL of its source file. */
  readonly url: URL;
  readonly replaced: readonly (readonly [text: string, by: string])[];
}

/** By name. */
export const PLANTED: ReadonlyMap<string, PlantedBug> = new Map(
  readFileSync(new URL('planted-bugs.txt', import.meta.url), 'utf8')
    .trim()
    .split(/\n(?! )/)
    .map((bug) => {
      const [title = '', ...edits] = bug.split('\n  ');
      const [name = '', file] = title.split(': ');
      const replaced = edits.map((edit) => {
        const [text = '', by = ''] = edit.replaceAll('\\n', '\n').split(/ → ?/);
        return [text, by] as const;
      });
      return [name, { url: new URL(`../../src/${file}`, import.meta.url), replaced }];
    }),
);

/** Lets the product be loaded with a bug. Call it before the first import of the product. */
export function plant(name: string): void {
  const bug = PLANTED.get(name);
  if (bug === undefined) throw new Error(`There is no planted bug "${name}"`);
  const source = planted(bug);
  registerHooks({
    load: (url, context, next) =>
      url === bug.url.href
        ? { format: 'module-typescript', source, shortCircuit: true }
        : next(url, context),
  });
}

/** The source with the bug. */
export function planted({ url, replaced }: PlantedBug): string {
  return replaced.reduce(
    (source, [text, by]) => {
      const parts = source.split(text);
      if (parts.length !== 2)
        throw new Error(`${url.pathname} has ${parts.length - 1} times: ${text}`);
      return parts.join(by);
    },
    readFileSync(url, 'utf8'),
  );
}
