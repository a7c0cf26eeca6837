/**
 * The engine calls of one chat request: the round that runs, what earlier ones used, and the bill
 * of all. Without `auto` search there is one round. Every round's tokens are billed in one settle.
 */
import type { CatalogModel, Price } from '../catalog/catalog.ts';
import { assert } from '../core/assert.ts';
import { type Nano, nano } from '../core/money.ts';
import type { ChatRequest } from './wire/chat-request.ts';
import type { ChatMessage } from './wire/chat-schema.ts';
import { type HeldRound, heldMessage } from './wire/held-calls.ts';
import type { FoundDocument, SearchResult } from './web/web.ts';
import type { AutoSearch } from './auto-search.ts';
import type { PreparedAdditions, SocialSearch } from './chat-additions.ts';
import { type ChatBill, type RoundEnd, type RoundUse, billChat, roundUse } from './chat-bill.ts';
import { type ExtraUse, receiptLines, surchargesOf } from './extra-uses.ts';
import { type Round, type RoundInputs, lastResort, leastOfRound, planRound } from './round.ts';

export interface ChatRoundsInputs {
  readonly request: ChatRequest;
  readonly model: CatalogModel;
  readonly price: Price;
  readonly grantedNano: Nano;
  readonly systemBytes: number;
  readonly additions: PreparedAdditions;
  readonly auto: AutoSearch | undefined;
  readonly social: SocialSearch | undefined;
}

export class ChatRounds {
  readonly #inputs: ChatRoundsInputs;
  readonly #uses: RoundUse[] = [];
  readonly #turns: ChatMessage[] = [];
  #turnBytes = 0;
  #attempts = 0;
  #current: Round;

  private constructor(inputs: ChatRoundsInputs, first: Round) {
    this.#inputs = inputs;
    this.#current = first;
  }

  /** The first round planned; `undefined` when the hold does not cover it. */
  static plan(inputs: ChatRoundsInputs): ChatRounds | undefined {
    const first = planRound(firstInputs(inputs));
    return first === undefined ? undefined : new ChatRounds(inputs, first);
  }

  /** The least that the first round costs with what was prepared for it. */
  static leastCost(inputs: ChatRoundsInputs): Nano {
    return nano(surchargesOf(boundUses(inputs)) + leastOfRound(firstInputs(inputs)));
  }

  get current(): Round {
    return this.#current;
  }

  /** Tries of all rounds that have ended. */
  get attempts(): number {
    return this.#attempts;
  }

  get citations(): readonly SearchResult[] {
    return [...this.#inputs.additions.citations, ...(this.#inputs.auto?.results ?? [])];
  }

  get documents(): readonly FoundDocument[] | undefined {
    return this.#inputs.additions.documents ?? this.#inputs.auto?.documents;
  }

  /** Notes what the current round used. */
  ended(end: RoundEnd, attempts: number): RoundUse {
    const { facts: media, choiceCount } = this.#inputs.request;
    const use = roundUse(end, { round: this.#current, media, choiceCount });
    this.#uses.push(use);
    this.#attempts += attempts;
    return use;
  }

  /** Answers the calls of the round that has ended, and plans the next; rejects on abort. */
  async search(held: HeldRound, signal: AbortSignal): Promise<void> {
    const { auto } = this.#inputs;
    assert(auto !== undefined, 'calls are held only where searches are offered');
    const answers = await auto.answer(held.calls, this.#current.searches, signal);
    const turns = [heldMessage(held), ...answers];
    this.#turns.push(...turns);
    for (const turn of turns) this.#turnBytes += Buffer.byteLength(JSON.stringify(turn));
    const next = this.#nextInputs(auto);
    this.#current = planRound(next) ?? lastResort(next);
  }

  /** The bill of all rounds that have ended. */
  bill(): ChatBill {
    const { price } = this.#inputs;
    return billChat({
      rounds: this.#uses,
      price,
      surchargesNano: surchargesOf(this.#used()),
    });
  }

  /** For the receipt. */
  extras(): Record<string, unknown> {
    const rounds = this.#uses.length > 1 ? { engine_calls: this.#uses.length } : {};
    return { ...receiptLines(this.#used()), ...rounds };
  }

  #used(): ExtraUse[] {
    const { additions, auto, social } = this.#inputs;
    const uses = [...additions.uses];
    if (auto !== undefined) uses.push(auto.use);
    if (social !== undefined && this.#uses.length > 0) {
      // An engine that names no number has made one search.
      const sources = this.#uses.reduce((sum, use) => sum + (use.searchSources ?? 1), 0);
      uses.push({ ...social.bound, count: Math.min(sources, social.bound.count) });
    }
    return uses;
  }

  #nextInputs(auto: AutoSearch): RoundInputs {
    const { request, model, price, additions, systemBytes, grantedNano } = this.#inputs;
    const { tokens, costNano } = this.bill();
    // The other nano covers what rounding took off.
    const leftNano = nano(grantedNano - costNano - 1n);
    return {
      request,
      model,
      price,
      messages: [...(additions.messages ?? request.messages), ...this.#turns],
      addedBytes: systemBytes + additions.textBytes + this.#turnBytes,
      leftNano,
      usedOutputTokens: tokens.completion,
      auto,
    };
  }
}

function firstInputs(inputs: ChatRoundsInputs): RoundInputs {
  const { request, model, price, additions, auto, systemBytes, grantedNano } = inputs;
  return {
    request,
    model,
    price,
    messages: additions.messages,
    addedBytes: systemBytes + additions.textBytes,
    leftNano: nano(grantedNano - surchargesOf(boundUses(inputs))),
    usedOutputTokens: 0,
    auto,
  };
}

function boundUses({ additions, social }: ChatRoundsInputs): ExtraUse[] {
  return [...additions.uses, ...(social === undefined ? [] : [social.bound])];
}
