/** Resolves to `true` as soon as one promise does; rejects with the first rejection. */
export async function isAny(questions: readonly Promise<boolean>[]): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const all = questions.map(async (question) => {
    const isYes = await question;
    if (isYes) resolve(true);
    return isYes;
  });
  return await Promise.race([promise, Promise.all(all).then((each) => each.includes(true))]);
}
