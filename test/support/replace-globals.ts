/** Global members of a page, for code of the console that runs without a browser. */
import { after } from 'node:test';

/** Replaces them until the end of the test, or outside of a test until the end of its file. */
export function replaceGlobals(members: object): void {
  for (const [name, value] of Object.entries(members)) {
    const before = Object.getOwnPropertyDescriptor(globalThis, name);
    Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
    after(() => {
      if (before === undefined) Reflect.deleteProperty(globalThis, name);
      else Object.defineProperty(globalThis, name, before);
    });
  }
}
