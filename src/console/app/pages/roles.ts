/** Roles of members, as pages describe them. */
import type { Member } from '../shapes.ts';

type Role = Member['role'];

export const ROLE_WORDS: Readonly<Record<Role, string>> = {
  owner: 'all rights, including members',
  billing: 'credit, statement and budgets',
  developer: 'models, keys and webhooks',
  viewer: 'reads usage and settings',
};

export const ROLE_CHOICES = Object.entries(ROLE_WORDS).map(
  ([role, words]) => [role, `${role}: ${words}`] as const,
);
