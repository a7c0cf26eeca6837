/** Why the user of this process may not use a file, in words: mostly it belongs to another user. */
import { accessSync, constants, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { codeOf } from './failures.ts';

/** `undefined` where the file, or the folder that it would be made in, can be read and written. */
export function accessProblem(path: string): string | undefined {
  for (const place of [path, dirname(path)]) {
    try {
      accessSync(place, constants.R_OK | constants.W_OK);
    } catch (error) {
      const code = codeOf(error);
      if (code === 'EROFS') return `${place} is on a file system that is read-only`;
      // What is not there is made in its folder.
      if (code === 'EACCES' || code === 'EPERM') return foreign(place);
    }
  }
  return undefined;
}

function foreign(place: string): string {
  const owner = ownerOf(place);
  const own = process.getuid?.();
  if (owner === undefined || owner === own) return `this user may not write ${place}`;
  return `${place} belongs to the user ${owner}, and this is the user ${own}: run the command as that user, or make this one the owner`;
}

/** Its number; of the folder around it where that is closed. */
function ownerOf(place: string): number | undefined {
  try {
    return statSync(place, { throwIfNoEntry: false })?.uid;
  } catch {
    // The folder is closed to this user.
    const parent = dirname(place);
    return parent === place ? undefined : ownerOf(parent);
  }
}
