/**
 * Shared code of the Office Open XML formats: parts refer to other parts through relationship files
 * (ECMA-376 part 2).
 */
import { posix } from 'node:path';
import { scanXml } from './markup.ts';
import type { ZipArchive } from './zip.ts';

export interface Relationship {
  /** Path of the target from the root of the archive, without a leading slash. */
  readonly path: string;
  /** The last segment of the type URL: `slide`, `notesSlide`, `worksheet`. */
  readonly type: string;
}

/** The relationships of a part by id, without external targets. */
export async function relationships(
  zip: ZipArchive,
  part: string,
): Promise<Map<string, Relationship>> {
  const folder = part.slice(0, part.lastIndexOf('/') + 1);
  const file = part.slice(folder.length);
  const found = new Map<string, Relationship>();
  scanXml((await zip.readText(`${folder}_rels/${file}.rels`)) ?? '', {
    open(name, attribute) {
      if (name !== 'Relationship' || attribute('TargetMode') === 'External') return;
      const target = attribute('Target') ?? '';
      const type = (attribute('Type') ?? '').split('/').at(-1) ?? '';
      found.set(attribute('Id') ?? '', { path: resolvePath(folder, target), type });
    },
  });
  return found;
}

export function resolvePath(folder: string, target: string): string {
  return posix.resolve('/', folder, target).slice(1);
}

/** The main part, such as `word/document.xml`; `undefined` if it is no office document. */
export async function officePart(zip: ZipArchive): Promise<string | undefined> {
  for (const target of (await relationships(zip, '')).values()) {
    if (target.type === 'officeDocument') return target.path;
  }
  return undefined;
}
