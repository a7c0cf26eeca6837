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

export class StreamCalls {
  readonly #begun = new Set<number>();
  readonly #ids = new Set<string>();
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
    const index = this.#indexOf(call);
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
    const at = this.#indexOf(call);
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

  /** Without an index, a new id or a name begins a new call. */
  #indexOf(call: JsonObject): number {
    const index = call['index'];
    if (typeof index === 'number' && Number.isSafeInteger(index) && index >= 0) return index;
    const isNew =
      typeof call['id'] === 'string' && call['id'] !== ''
        ? !this.#ids.has(call['id'])
        : (functionName(call) ?? '') !== '';
    return isNew ? this.#begun.size : Math.max(0, this.#begun.size - 1);
  }
}
