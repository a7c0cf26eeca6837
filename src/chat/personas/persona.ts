/**
 * What a persona is: the character that callers see, the prompt that only the model sees, and the
 * query that finds characters. Shapes only.
 */

/** What callers see of a persona (decisions 7, row Characters). */
export interface Character {
  readonly id: string;
  readonly slug: string;
  readonly name: string;
  readonly description: string;
  readonly tags: readonly string[];
  readonly adult: boolean;
  readonly author: string;
  readonly createdAt: string;
  readonly updatedAt: string;
  readonly featured: boolean;
  readonly photoUrl: string | null;
  readonly shareUrl: string | null;
  readonly webEnabled: boolean;
  readonly modelId: string;
  readonly stats: {
    readonly averageRating: number;
    readonly imports: number;
    readonly ratingCount: number;
    readonly ratingSum: number;
    readonly userRating: number | null;
  };
}

export interface Persona {
  readonly slug: string;
  /** Goes before the caller's own system prompt. */
  readonly prompt: string;
  readonly isPro: boolean;
  readonly categories: readonly string[];
  readonly character: Character;
}

export const CHARACTER_SORTS = [
  'featured',
  'name',
  'createdAt',
  'updatedAt',
  'imports',
  'rating',
] as const;
export type CharacterSort = (typeof CHARACTER_SORTS)[number];

/** The query of `GET /characters`, already validated; `limit` 1 to 100. */
export interface CharacterQuery {
  readonly search?: string;
  /** Any of them. */
  readonly categories?: readonly string[];
  /** All of them. */
  readonly tags?: readonly string[];
  readonly modelId?: string;
  readonly isAdult?: boolean;
  readonly isPro?: boolean;
  readonly isWebEnabled?: boolean;
  readonly sortBy?: CharacterSort;
  readonly sortOrder?: 'asc' | 'desc';
  readonly limit?: number;
  readonly offset?: number;
}
