/**
 * The tool calls of one choice of a stream: assigns the index, id, type and name that the SDKs
 * need, and collects the calls of the service's own search tool, which the caller does not see.
 */
import { argumentsText, functionOf, functionName } from './chat-choice.ts';
import type { SearchCall } from './search-calls.ts';
import type { JsonObject } from '../../json/json-scan.ts';

interface SearchPiece {
  readonly id: string;
  arguments: string;
}

/** The last call that began at an index of the engine. */
interface CallAtIndex {
  readonly number: number;
  readonly id: string;
}

export class StreamCalls {
  /** Whether a call has another number than the engine's index. */
  areRenumbered = false;
  readonly #atIndex = new Map<number, CallAtIndex>();
  readonly #begun = new Set<number>();
  readonly #ids = new Set<string>();
  /** Search calls by number. */
  readonly #searches = new Map<number, SearchPiece>();
  readonly #searchTool: string | undefined;
  readonly #newCallId: () => string;

  constructor(searchTool: string | undefined, newCallId: () => string) {
    this.#searchTool = searchTool;
    this.#newCallId = newCallId;
  }

  get shownCount(): number {
    return this.#begun.size - this.#searches.size;
  }

  get searches(): SearchCall[] {
    return [...this.#searches.values()].map((call) => ({ ...call, name: this.#searchTool ?? '' }));
  }

  /** Returns the pieces for the caller; the engine's call 0 gets the index `firstCall`. */
  show(pieces: readonly JsonObject[], firstCall: number): JsonObject[] {
    const shown = pieces.filter((piece) => !this.#takeSearch(piece));
    return shown.map((piece) => this.#safePiece(piece, firstCall));
  }

  /** Collects a piece of a search call; `false` for a piece of any other call. */
  #takeSearch(call: JsonObject): boolean {
    if (this.#searchTool === undefined) return false;
    const index = this.#numberOf(call);
    const text = argumentsText(functionOf(call)['arguments']);
    const known = this.#searches.get(index);
    if (known !== undefined) {
      known.arguments += text;
      return true;
    }
    if (this.#begun.has(index) || functionName(call) !== this.#searchTool) return false;
    this.#searches.set(index, { id: this.#begin(call, index), arguments: text });
    return true;
  }

  #safePiece(call: JsonObject, firstCall: number): JsonObject {
    const at = this.#numberOf(call);
    const made = functionOf(call);
    const isFirst = !this.#begun.has(at);
    let index = at + firstCall;
    for (const search of this.#searches.keys()) if (search < at) index -= 1;
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

  /**
   * The number of the call. It is the engine's index, unless that belongs to another call already:
   * some engines send `index: 0` for all parallel calls. Then, and without an index, a new id with
   * a name begins a new call.
   */
  #numberOf(call: JsonObject): number {
    const { index } = call;
    const id = typeof call['id'] === 'string' ? call['id'] : '';
    const hasName = (functionName(call) ?? '') !== '';
    if (typeof index !== 'number' || !Number.isSafeInteger(index) || index < 0) {
      const isNew = id !== '' ? !this.#ids.has(id) : hasName;
      if (!isNew) return Math.max(0, this.#begun.size - 1);
      const number = this.#begun.size;
      this.#atIndex.set(number, { number, id }); // the next piece of the call may have an index
      return number;
    }
    const known = this.#atIndex.get(index);
    if (known !== undefined) {
      const isOther = id !== '' && known.id !== '' && id !== known.id && hasName;
      if (!isOther) return known.number;
    }
    let number = index;
    if (this.#begun.has(index)) {
      number = this.#begun.size;
      while (this.#begun.has(number)) number += 1;
    }
    this.areRenumbered ||= number !== index;
    this.#atIndex.set(index, { number, id });
    return number;
  }
}
