/**
 * The tool calls of one choice of a stream: which have begun, which are held back because their
 * tool is ours, and the index, id, type and name that the SDKs need in their pieces.
 */
import { argumentsText, madeBy, nameOf } from './chat-choice.ts';
import type { HeldCall } from './held-calls.ts';
import type { JsonObject } from '../../json/json-scan.ts';

interface HeldPiece {
  readonly id: string;
  arguments: string;
}

export class StreamCalls {
  readonly #begun = new Set<number>();
  readonly #ids = new Set<string>();
  /** Calls that the caller does not see, by the engine's index. */
  readonly #held = new Map<number, HeldPiece>();
  readonly #heldTool: string | undefined;
  readonly #newCallId: () => string;

  constructor(heldTool: string | undefined, newCallId: () => string) {
    this.#heldTool = heldTool;
    this.#newCallId = newCallId;
  }

  get shownCount(): number {
    return this.#begun.size - this.#held.size;
  }

  get held(): HeldCall[] {
    return [...this.#held.values()].map((call) => ({ ...call, name: this.#heldTool ?? '' }));
  }

  /** The pieces for the caller; the engine's call 0 has the index `firstCall` there. */
  show(pieces: readonly JsonObject[], firstCall: number): JsonObject[] {
    const shown = pieces.filter((piece) => !this.#hold(piece));
    return shown.map((piece) => this.#safePiece(piece, firstCall));
  }

  /** Takes a piece of a held call; `false` for a piece that is the caller's. */
  #hold(call: JsonObject): boolean {
    if (this.#heldTool === undefined) return false;
    const index = this.#indexOf(call);
    const text = argumentsText(madeBy(call)['arguments']);
    const known = this.#held.get(index);
    if (known !== undefined) {
      known.arguments += text;
      return true;
    }
    if (this.#begun.has(index) || nameOf(call) !== this.#heldTool) return false;
    this.#held.set(index, { id: this.#begin(call, index), arguments: text });
    return true;
  }

  #safePiece(call: JsonObject, firstCall: number): JsonObject {
    const at = this.#indexOf(call);
    const made = madeBy(call);
    const isFirst = !this.#begun.has(at);
    let index = at + firstCall;
    for (const held of this.#held.keys()) if (held < at) index -= 1;
    const given = made['arguments'];
    const text = given === undefined && !isFirst ? {} : { arguments: argumentsText(given) };
    if (!isFirst) return { ...call, index, function: { ...made, ...text } };
    const id = this.#begin(call, at);
    return { ...call, index, id, type: 'function', function: { ...made, ...text } };
  }

  #begin(call: JsonObject, index: number): string {
    const id = typeof call['id'] === 'string' && call['id'] !== '' ? call['id'] : this.#newCallId();
    this.#begun.add(index);
    this.#ids.add(id);
    return id;
  }

  /** Engines that leave the index out send each call whole, or tell them apart by id. */
  #indexOf(call: JsonObject): number {
    const index = call['index'];
    if (typeof index === 'number' && Number.isSafeInteger(index) && index >= 0) return index;
    const isNew =
      typeof call['id'] === 'string' && call['id'] !== ''
        ? !this.#ids.has(call['id'])
        : (nameOf(call) ?? '') !== '';
    return isNew ? this.#begun.size : Math.max(0, this.#begun.size - 1);
  }
}
