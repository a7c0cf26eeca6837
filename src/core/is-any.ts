/** Whether one of several questions is answered with yes; as soon as one is. Rejects with the first that does. */
export async function isAny(questions: readonly Promise<boolean>[]): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const all = questions.map(async (question) => {
    const isYes = await question;
    if (isYes) resolve(true);
    return isYes;
  });
  return await Promise.race([promise, Promise.all(all).then((each) => each.includes(true))]);
}
